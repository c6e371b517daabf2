"""The application: kinds, schedules, a store, and everything that is done with them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from redrive.errors import (
    ConfigError,
    ConnectionUnknown,
    IdempotencyConflict,
    InvalidInput,
    SchemaError,
    StoreError,
    StoreUnavailable,
    WrongSetting,
)
from redrive.features import features_of, load
from redrive.handlers import builtin
from redrive.handlers.context import Context
from redrive.handlers.events import TaskEvent, check_event
from redrive.handlers.functions import name_of
from redrive.handlers.history import DEFAULT_HISTORY, check_history
from redrive.handlers.kinds import DEFAULTS
from redrive.handlers.new_task import GivenTask, NewTasks, as_enqueued, make_task, stamp
from redrive.handlers.options import EnqueueOptions, check_options
from redrive.handlers.registry import DEFAULT_MAX_ATTEMPTS, Declared, Handler, Registry, check_public, make_handler
from redrive.handlers.routing import Routing
from redrive.handlers.signature import Call
from redrive.kernel.applied import Applied
from redrive.kernel.classify import Classification
from redrive.kernel.commit import Commit, Declare, Schedule
from redrive.kernel.machine import Policy
from redrive.kernel.payload import JsonText
from redrive.kernel.ports.tasks import get_task
from redrive.kernel.task import (
    Enqueued,
    NewTask,
    Task,
    check_attempts,
    check_name,
    check_priority,
)
from redrive.kernel.trace import split_trace
from redrive.settings import Options, Settings, load_settings
from redrive.stores import is_sqlite, make_store
from redrive.stores.holder import StoreHolder
from redrive.sync import Portal, SyncApp

# Workers and operators are imported by whoever asks for one: most processes of an application only enqueue.
if TYPE_CHECKING:
    from redrive.kernel.duty import Duty
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store
    from redrive.observe.logs import TaskLog
    from redrive.observe.tracing import Tracing
    from redrive.ops.access import Caller
    from redrive.ops.failed_tasks import FailedTasks
    from redrive.ops.operator import Operator
    from redrive.ops.sign_in import Limits
    from redrive.ops.why import Reason
    from redrive.worker.hooks import Hooks
    from redrive.worker.options import WorkerOptions
    from redrive.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Classifier = TypeVar("Classifier", bound=Callable[[BaseException], Classification | None])
Fingerprinter = TypeVar("Fingerprinter", bound=Callable[[BaseException], str | None])
Listener = TypeVar("Listener", bound=Callable[[TaskEvent], Any])
MISSED = ("coalesce", "all", "skip")
DEFAULT_NAME = "default"
# One connection of an application, for those who may not know stores: they pass it on.
Served = StoreHolder
# From here on the first tasks of a list are sent while the next are made.
MANY = 600


class TaskHandler(Generic[P]):
    """What ``@app.task`` leaves in place of the function: call it as before, or enqueue it, typed."""

    def __init__(self, app: App, handler: Handler, options: EnqueueOptions | None = None) -> None:
        self._app = app
        self._options: EnqueueOptions = options or {}
        self.handler = handler
        self.kind = handler.kind
        self.function = handler.function
        self.__doc__ = handler.function.__doc__
        self.__name__ = getattr(handler.function, "__name__", handler.kind)

    def __repr__(self) -> str:
        return f"<the handler of {self.kind}>"

    # Without names of our own: an argument of the handler may be called anything, also ``self``.
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[EnqueueOptions]) -> TaskHandler[P]:
        """The same task with enqueue options: ``send.options(delay=60).enqueue(to="a@b.c")``."""
        return TaskHandler(self._app, self.handler, {**self._options, **check_options(options)})

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Enqueue a call: the handler gets these arguments as they are given here, or this refuses them."""
        return await self._app.enqueue(self.kind, Call(args, kwargs), **self._options)

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Task:
        """``enqueue`` from code without an event loop."""
        return self._app.sync.enqueue(self.kind, Call(args, kwargs), **self._options)


class App:
    """``App(url)`` uses that store, ``App()`` that of ``REDRIVE_URL``, else ``sqlite:///redrive.db`` in this directory.

    ``features`` bring tables, kinds, routes and duties of their own, besides those that are installed. ``name`` says
    whose schedules these are. Without one, ``redrive work`` and ``up`` use the application's import path.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = DEFAULT_NAME,
        settings: Settings | None = None,
        features: Iterable[Feature] = (),
    ) -> None:
        self.features = features_of(features)
        known = settings if settings is not None else load_settings(url=url, features=self.features)
        self.settings = known.with_features(self.features)
        self.connections = self._connections(url or self.settings.url)
        self._main = self.connections[self.settings.default_connection]
        self.name = check_name(name, "app name")
        self.owner = self.name
        routing = Routing(self._main.name, self.settings.routes) if self.settings.routes else None
        self.registry = Registry(routing=routing)
        # Asked for each task that is enqueued: None where all go to the default connection.
        self._routing = routing if any(one.connection for one in self.settings.routes.values()) else None
        self.schedules: dict[str, Schedule] = {}
        self.sync = SyncApp(self, Portal())
        self._check_connections("" if url is not None or settings is not None else "REDRIVE_URL")
        self._tracing = _load_tracing(self.settings.tracing)
        for kind, function in (
            (builtin.HEALTH_CHECK, builtin.health_check),
            (builtin.FAIL_ALWAYS, builtin.fail_always),
            (builtin.DRILL, builtin.drill),
        ):
            self._register(kind, function, {"max_attempts": 3})
        self._services: dict[Any, Any] = {}
        self._take_up(self.features)

    def _connections(self, url: str) -> dict[str, StoreHolder]:
        """Returns a holder for each connection, the default one first."""
        urls = {self.settings.default_connection: url, **self.settings.other_urls}
        return {name: StoreHolder(name, where, self.features) for name, where in urls.items()}

    def _check_connections(self, source: str) -> None:
        """Refuses a URL that cannot work here, where it was written. ``source``: what it is called, for the default."""
        for name, holder in self.connections.items():
            try:
                holder.make()
            except WrongSetting as error:
                told = f"connections.{name}" if name in self.settings.connections else source
                error.message = f"{told}: {error.message}" if told else error.message
                raise

    def _take_up(self, features: Iterable[Feature]) -> None:
        taken = {*dir(type(self)), *vars(self)}
        for feature in features:
            for name in feature.services:
                if name in taken:
                    raise ConfigError(
                        f"the feature {feature.name!r} cannot put {name!r} on the application, which has that already"
                    )
            taken.update(feature.services)
            if feature.kinds is not None:
                feature.kinds.add_to(partial(self._register_for, feature.name))
            if feature.declare is not None:
                feature.declare(self)
            if feature.retention is not None:
                from redrive.stores.features import check_statements

                check_statements(feature, feature.retention(self.settings))

    def _register_for(
        self, feature: str, kind: str, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Handler:
        if self.registry.routing is not None:
            self.registry.routing.exempt(kind, feature)
        return self._register(kind, function, options)

    def of(self, service: Callable[[App], S]) -> S:
        """Returns a feature's service for this application, typed; the same one each time: ``app.of(Shop)``."""
        made: S = self._services.get(service) or self._services.setdefault(service, service(self))
        return made

    if not TYPE_CHECKING:  # else a misspelt name would pass; typed code writes app.of(Shop)

        def __getattr__(self, name: str) -> Any:
            """Returns what a feature puts on the application by this name: ``app.orders``."""
            for feature in self.__dict__.get("features", ()):
                if name in feature.services:
                    return self.of(load(feature.services[name]))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    # -- declaring -------------------------------------------------------------------------------------------------

    def task(
        self,
        kind: str,
        *,
        queue: str = "default",
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        timeout: float | None = None,
        priority: int = 0,
        isolation: str | None = None,
        bulk: int | None = None,
        payload: Any = None,
        concurrency: int | None = None,
        rate_limit_ms: int | None = None,
        deterministic: tuple[type[BaseException], ...] = (),
        backoff_base: float | None = None,
        backoff_max: float | None = None,
        public: Iterable[str] = (),
        history: str | float | None = DEFAULT_HISTORY,
    ) -> _Decorator:
        """Register a handler for a kind.

        ``async def`` handlers run on the event loop, ``def`` handlers in threads, ``isolation="process"`` ones in a
        process that is killed at its timeout. ``bulk=N`` handlers get a ``Bulk`` of up to N tasks.
        ``concurrency`` and ``rate_limit_ms`` hold for the whole fleet. ``deterministic`` lists exceptions that
        another attempt would not cure. ``public`` names payload fields that viewers may see (short values only): an
        order's number, not its address. ``history`` says how long completed tasks of this kind are kept, if shorter
        than ``REDRIVE_HISTORY_DAYS``: ``"15m"``, ``"1h"``, ``"2d"`` or seconds; ``None``: they leave nothing.
        """
        if callable(kind):  # @app.task, as other queues have it; the function would be gone without a word
            raise ConfigError(
                f"@app.task is given no kind, and the function {name_of(kind)!r} instead",
                hint=f'write: @app.task("{name_of(kind).upper()}")',
            )
        options = {
            "queue": queue,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "priority": priority,
            "isolation": isolation,
            "bulk": bulk,
            "payload": payload,
            "concurrency": concurrency,
            "rate_limit_ms": rate_limit_ms,
            "deterministic": deterministic,
            "backoff_base": backoff_base,
            "backoff_max": backoff_max,
            "public": public,
            "history": check_history(kind, history),
        }
        return _Decorator(self, kind, options)

    def declare(
        self,
        kind: str,
        *,
        queue: str = "default",
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        priority: int = 0,
        public: Iterable[str] = (),
    ) -> None:
        """A kind that this application enqueues and another one handles."""
        self.registry.declare(
            Declared(
                check_name(kind, "kind"),
                check_name(queue, "queue"),
                check_attempts(max_attempts),
                check_priority(priority),
                check_public(kind, public),
            )
        )

    def periodic(
        self,
        kind: str,
        *,
        cron: str,
        timezone: str = "UTC",
        payload: Any = None,
        name: str | None = None,
        missed: str = "coalesce",
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Enqueue a kind by the clock, once across the fleet.

        ``missed`` says what happens to runs that fell into a time without workers: ``coalesce`` runs once for all of
        them, ``all`` runs each, ``skip`` runs none of them (a run up to a minute late still happens).
        """
        if missed not in MISSED:
            raise InvalidInput(f"missed must be one of {', '.join(MISSED)}, not {missed!r}")
        from redrive.handlers.cron import check_cron

        check_cron(cron, timezone)
        task = make_task(self.registry, kind, payload, queue=queue, priority=priority, max_attempts=max_attempts)
        label = check_name(name or kind, "schedule name")
        if label in self.schedules:
            raise InvalidInput(f"two schedules are named {label!r}", hint="give one of them name=…")
        self.schedules[label] = Schedule(
            label,
            kind,
            cron,
            timezone,
            missed,
            task.queue,
            task.payload,
            task.priority,
            task.max_attempts,
            datetime.now(UTC),
        )

    def classify(self, function: Classifier) -> Classifier:
        """Register a function of an exception that gives back a ``Classification``, or None where it does not know.

        Asked before redrive's own rules, in the order of registration. One that raises is logged and passed over."""
        self.registry.rules.classify.append(function)
        return function

    def classify_as(
        self, exception: str, *, reason: str, failure_type: str = "unknown", retryable: bool = True
    ) -> None:
        """The same for an exception class by its name, ``package.Class`` or with its whole path, and what derives from
        it: ``app.classify_as("stripe.CardError", reason="card", failure_type="param_error", retryable=False)``."""
        self.registry.rules.named[exception] = Classification(check_name(reason, "reason"), failure_type, retryable)

    def fingerprint(self, function: Fingerprinter) -> Fingerprinter:
        """Register a function of an exception that names its cause, or gives back None where it does not know.

        Failures of one name have one cause. One that raises is logged, and the failure is grouped as without it."""
        self.registry.rules.fingerprint.append(function)
        return function

    def on(self, event: str) -> Callable[[Listener], Listener]:
        """Register a function that is told what became of tasks in this application's workers: ``@app.on("failed")``.

        It gets one ``TaskEvent`` after the commit, at most once: when the worker dies, hangs or has too many to tell,
        it is not told. What must happen belongs into a task, or into a feature's reaction. ``def`` or ``async def``;
        one that raises is logged, one that takes longer than ``REDRIVE_HOOK_TIMEOUT_MS`` is no longer waited for.
        """
        name = check_event(event)

        def register(function: Listener) -> Listener:
            if not callable(function):
                raise ConfigError(f"a hook of {name!r} must be a function, not {function!r}")
            self.registry.hooks.setdefault(name, []).append(function)
            return function

        return register

    def _register(self, kind: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Handler:
        given = dict(options)
        base, most = given.pop("backoff_base", None), given.pop("backoff_max", None)
        default = self.settings.backoff
        backoff = type(default)(default.base if base is None else base, default.maximum if most is None else most)
        policy = Policy(given.pop("max_attempts", DEFAULT_MAX_ATTEMPTS), backoff, given.pop("history", None))
        made = make_handler(kind, function, policy=policy, **{**DEFAULTS, **given})
        handler = replace(made, rules=self.registry.rules)
        self.registry.add(handler)
        return handler

    # -- enqueueing ------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        connection: Any = None,
        on: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        timeout: float | None = None,
        group: str | None = None,
        scope: str | None = None,
        trace_id: str | None = None,
        idempotency_key: str | None = None,
        join: UUID | None = None,
    ) -> Task:
        """Enqueue one task; when this returns, it is durable.

        With ``connection`` (psycopg, asyncpg, sqlite3, SQLAlchemy, Django) it becomes part of that connection's
        transaction instead: the caller's commit makes it visible, a rollback leaves nothing. With a
        known ``idempotency_key`` the existing task is returned; if that one has another kind or payload,
        ``IdempotencyConflict`` is raised. ``join`` makes it a member of one; a handler names that of its own task:
        ``join=ctx.task.join``. ``on`` names the connection (of ``redrive.toml``) that it goes to, in place of the
        kind's route; a join, and the transaction of ``connection``, have to be on the same one.
        """
        new = make_task(
            self.registry,
            kind,
            payload,
            queue=queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            timeout=timeout,
            group=group,
            scope=scope,
            trace_id=trace_id,
            idempotency_key=idempotency_key,
            join=join,
        )
        where = self._main if self._routing is None and on is None else self._where((kind,), on, connection)
        [answer] = await self._put([new], where, connection)
        return as_enqueued(new) if answer.created else await self._known(new, answer, where, connection)

    async def enqueue_many(
        self, tasks: Sequence[GivenTask], *, connection: Any = None, on: str | None = None
    ) -> list[Task]:
        """Enqueue many at once: all or none. Each is ``(kind, payload)`` or a dict of ``enqueue``'s arguments; leave
        them as they are until this returns.

        With ``connection``, a conflicting key raises and leaves the decision to the caller's transaction. All go to
        one connection, that of their routes or ``on``: tasks with different ones are refused.
        """
        new = NewTasks(self.registry, tasks)
        where = self._main if self._routing is None and on is None else self._where(new.kinds, on, connection)
        in_parts = len(new) > MANY and connection is None and new.may_be_parted
        if not in_parts:
            new.make(len(new))
        if not new:
            return []
        answers = await self._put(new, where, connection, in_parts=in_parts)
        return [
            as_enqueued(task) if answer.created else await self._known(task, answer, where, connection)
            for task, answer in zip(new, answers, strict=True)
        ]

    def _where(self, kinds: Iterable[str], on: str | None, connection: Any) -> StoreHolder:
        """Returns where tasks of these kinds go. One that cannot be part of the caller's transaction is refused."""
        if on is not None:
            name = self.at(on).name
        else:
            name = self._main.name if self._routing is None else self._routing.only(kinds)
        if connection is not None:
            from redrive.integrations.same_store import insist_on_same

            said, sqlite = on is not None, is_sqlite(self.connections[name].url)
            insist_on_same(connection, name, said=said, default=self._main.name, sqlite=sqlite)
        return self.connections[name]

    async def _put(
        self,
        new: Sequence[NewTask],
        where: StoreHolder,
        connection: Any,
        *,
        in_parts: bool = False,
        traced: bool = False,
    ) -> list[Enqueued]:
        if self._tracing is not None and not traced:
            return await self._put_traced(self._tracing, new, where, connection, in_parts)
        if connection is None:
            store = where.recent() or await where.store()
            keyed = len(new) > 1 and not in_parts and any(task.idempotency_key is not None for task in new)
            return (await store.apply(Commit(enqueues=new, all_or_none=keyed), in_parts=in_parts)).enqueued
        return (await self._apply_on(connection, where, Commit(enqueues=new))).enqueued

    async def _put_traced(
        self, tracing: Tracing, new: Sequence[NewTask], where: StoreHolder, connection: Any, in_parts: bool
    ) -> list[Enqueued]:
        """Enqueues within a span, whose context the tasks keep."""
        given = split_trace(new[0].trace_id)[1] if len(new) == 1 else None
        with tracing.sending(new, given) as trace:
            if trace is not None:
                if given is not None:  # the caller's context: the span is its child, and stands in its place
                    new[0].trace_id = trace
                stamp(new, trace)
            return await self._put(new, where, connection, in_parts=in_parts, traced=True)

    async def _apply_on(self, connection: Any, where: StoreHolder, commit: Commit) -> Applied:
        from redrive.integrations import OwnCommit, apply_on

        try:
            own = OwnCommit(commit, self.features)
            answers = apply_on(connection, own)
            return Applied(enqueued=await answers if isinstance(answers, Awaitable) else answers, repeated=own.repeated)
        except SchemaError as error:  # tables there would be of no use to workers that look elsewhere
            error.hint = f"{error.hint} (this application's workers look in {where.shown_url})"
            raise

    async def _known(self, new: NewTask, answer: Enqueued, where: StoreHolder, connection: Any) -> Task:
        if answer.conflict:
            raise IdempotencyConflict(new.idempotency_key or "", answer.id)
        # Inside a caller's transaction the task may be one that only that transaction sees.
        found = None if connection is not None else await self._seen(answer.id, where)
        task = found or as_enqueued(new)
        task.id = answer.id
        task.deduplicated = True
        return task

    async def _seen(self, task_id: UUID, where: StoreHolder) -> Task | None:
        """None also where it may not be looked at: a database role that only enqueues cannot read tasks."""
        try:
            return await get_task(await where.store(), task_id)
        except StoreError:
            return None

    async def apply(self, commit: Commit, *, connection: Any = None, on: str | None = None) -> Applied:
        """Applies a Commit, all of it or nothing: for features, whose services make them.

        With ``connection`` (as in ``enqueue``) it becomes part of that connection's transaction. Then it may add tasks,
        joins, postings, rows and audit rows, and close joins. It lands on one connection: that of its tasks, which
        have to agree, or ``on``.
        """
        self._check_features(commit)
        where = self._main if self._routing is None and on is None else self._where_of(commit, on, connection)
        if self._tracing is not None and (trace := self._tracing.active()) is not None:
            stamp(commit.enqueues, trace)
        if connection is None:
            return await (await where.store()).apply(commit)
        return await self._apply_on(connection, where, commit)

    def _where_of(self, commit: Commit, on: str | None, connection: Any) -> StoreHolder:
        kinds = [task.kind for task in commit.new_tasks]
        where = self._where(kinds, on, connection)
        if on is None and where is not self._main and not commit.only_new_tasks:
            raise InvalidInput(
                f"{kinds[0]} goes to the connection {where.name}, and the rest of this Commit to {self._main.name}",
                hint="apply them one after the other, or say on=… for all of it",
            )
        return where

    def _check_features(self, commit: Commit) -> None:
        """Refuses tasks for a feature that this application does not have: no worker of it would run them."""
        named = {task.feature for task in commit.enqueues if task.feature is not None}
        if unknown := named - {feature.name for feature in self.features}:
            raise InvalidInput(
                f"this application has no feature {min(unknown)!r}",
                hint=f"it has: {', '.join(sorted(one.name for one in self.features)) or 'none'}; "
                "name it in App(features=…), or mend feature=",
            )

    # -- looking and acting ----------------------------------------------------------------------------------------

    async def get(self, task_id: UUID | str) -> Task | None:
        """Returns a task by its id, live or finished."""
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        return await get_task(await self._store_with(wanted), wanted)

    async def cancel(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        """Cancel a waiting task now, or ask a running one to stop."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        result = await actions.cancel(await self._store_with(wanted), [wanted], actor=actor, reason=reason)
        actions.insist(result, "cancelled")

    async def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        """Run a failed or cancelled task again."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        result = await actions.retry(await self._store_with(wanted), [wanted], actor=actor, reason=reason)
        actions.insist(result, "retried")

    @property
    def failed(self) -> FailedTasks:
        """Tasks that are failed now: ``await app.failed.list(kind="SEND")``, ``retry_many``, ``statistics``."""
        from redrive.ops.failed_tasks import FailedTasks

        return FailedTasks(self.store)

    async def operator(self, caller: Caller, on: str | None = None) -> Operator:
        """Returns the service through which a caller looks at this application's tasks and acts on them, by role: those
        of the default connection, or of another."""
        from redrive.ops.operator import Operator
        from redrive.ops.policy import Policy as OperatingPolicy

        policy, where = OperatingPolicy.of(self.settings), self.at(on)
        return Operator(
            await where.store(),
            self.registry,
            policy,
            caller,
            where.name,
            features=self.features,
            connections=tuple(self.connections),
        )

    async def caller(self, secret: str) -> Caller | None:
        """Returns whose token this is; None when nobody's."""
        from redrive.ops import access

        return await access.check(await self.store(), secret)

    async def has_tokens(self) -> bool:
        """Returns whether there ever was a token: revoking the last one must not let everybody in."""
        from redrive.ops import access

        return await access.any_token(await self.store())

    async def sign_in(self, token: str) -> str | None:
        """Returns the secret of a new console session for whoever has this token; None when the token is nobody's."""
        from redrive.ops import sign_in as sessions

        return await sessions.sign_in(await self.store(), token, self._session_limits)

    async def signed_in(self, secret: str, *, seen: bool = True) -> Caller | None:
        """Returns who is signed in by this secret; None when nobody is, any more. ``seen``: this keeps it from ending
        as idle."""
        from redrive.ops import sign_in as sessions

        return await sessions.check(await self.store(), secret, self._session_limits, seen=seen)

    async def sign_out(self, secret: str) -> None:
        from redrive.ops import sign_in as sessions

        await sessions.sign_out(await self.store(), secret)

    @property
    def _session_limits(self) -> Limits:
        from redrive.ops.sign_in import Limits

        idle, longest = self.settings.console_idle_minutes, self.settings.console_session_hours
        return Limits(timedelta(minutes=idle), timedelta(hours=longest))

    async def why(self, task_id: UUID | str) -> list[Reason]:
        """Returns why a task does not run; nothing when it does, or is done."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id
        from redrive.ops.why import why as explain

        wanted = parse_id(str(task_id))
        store = await self._store_with(wanted)
        return await explain(store, await actions.require(store, wanted))

    async def _store_with(self, task_id: UUID) -> Store:
        """Returns the store that has a task; the default one where none has, or there is no other."""
        if len(self.connections) == 1:
            return await self.store()
        return await (self.connections[await self.connection_with(task_id) or self._main.name]).store()

    async def connection_with(self, task_id: UUID) -> str | None:
        """Returns the name of the connection that has a task. One that is away is passed over; where none of the others
        has it, that is the answer."""
        away: StoreUnavailable | None = None
        for name, holder in self.connections.items():
            try:
                if await get_task(await holder.store(), task_id) is not None:
                    return name
            except StoreUnavailable as error:
                error.message = f"{name}: {error.message}"
                away = away or error
        if away is not None:
            raise away
        return None

    # -- running ---------------------------------------------------------------------------------------------------

    def worker(
        self,
        store: Store | None = None,
        options: Options | None = None,
        *,
        on: str | None = None,
        log: TaskLog | None = None,
        **given: Unpack[WorkerOptions],
    ) -> Worker:
        """A worker of this application for your own process, with the options of ``redrive work`` by name:
        ``async with app.worker(queues="mail", concurrency=10): …`` or ``await app.worker(concurrency=10).run()``.
        ``on`` names the connection that it serves, if not the default one."""
        from redrive.ops.retention import retention_of
        from redrive.worker.config import WorkerConfig, worker_id
        from redrive.worker.options import make_options
        from redrive.worker.worker import Worker

        if options is not None and given:
            raise InvalidInput("give the worker's options by name, or as one Options, not both")
        chosen, where = options or make_options(given, self.queues(), self.settings), self.at(on)
        named = worker_id(self.settings)
        return Worker(
            self._own_store(where) if store is None else store,
            WorkerConfig(named, self.registry, self.settings, chosen, where.shown_url, where.name, self._tracing),
            Declare(self.owner, tuple(self._planned(s) for s in self._schedules_of(where))),
            log=log or self._task_log(),
            duties=self._duties(where),
            retention=retention_of(self.settings, self.features),
            hooks=self._hooks(),
        )

    def _hooks(self) -> Hooks | None:
        """Returns what tells this application's hooks, in a worker; None where there are none."""
        hooks, sentry = {name: [*listed] for name, listed in self.registry.hooks.items()}, self.settings.sentry
        if sentry != "off":
            capture = _load_sentry(sentry)
            for name in ("failed", "retried")[: 2 if sentry == "all" else 1]:
                hooks.setdefault(name, []).append(capture)
        if not hooks:
            return None
        from redrive.worker.hooks import Hooks

        return Hooks(hooks, self.settings.hook_timeout_ms / 1000, self._public_part)

    def _public_part(self, kind: str, payload: str | None) -> Any:
        """Returns those fields of a payload that everybody may see."""
        known = self.registry.known(kind)
        names = {*(() if known is None else known.public), *self.settings.public_fields.get(kind, ())}
        if not names or payload is None:
            return None
        from redrive.ops.views import public_part

        return public_part(JsonText(payload), names)

    def _task_log(self) -> TaskLog:
        from redrive.observe.logs import TaskLog, choose_style

        chosen = self.settings
        return TaskLog(style=choose_style(chosen.log_format), level=chosen.log_level, sample=chosen.log_sample)

    def _schedules_of(self, where: StoreHolder) -> list[Schedule]:
        """Returns the schedules whose kinds go to this connection: there they are kept, and fire."""
        names = {one.kind: self._where((one.kind,), None, None) for one in self.schedules.values()}
        return [one for one in self.schedules.values() if names[one.kind] is where]

    @staticmethod
    def _own_store(where: StoreHolder) -> Store:
        try:
            return where.bound()
        except RuntimeError:  # SQLite serves all loops, and needs none here
            raise InvalidInput(
                "a worker belongs to an event loop, and none runs here",
                hint="call app.worker() in the coroutine that runs it: async with app.worker(): …",
            ) from None

    def _duties(self, where: StoreHolder) -> list[Duty]:
        """Returns the duties that ops and features bring to a worker."""
        from redrive.ops.duties import duties_of

        own = [feature.duties(self.settings) for feature in self.features if feature.duties is not None]
        return [*duties_of(self.settings, where.shown_url, where.name), *(duty for duties in own for duty in duties)]

    def queues(self) -> tuple[str, ...]:
        """Returns every queue that a handler of this application uses, ``default`` first."""
        return tuple(sorted({h.queue for h in self.registry.handlers.values()}, key=lambda q: (q != "default", q)))

    async def run_worker(self, options: Options | None = None, **given: Unpack[WorkerOptions]) -> None:
        """Run a worker in this event loop until it is cancelled or an option ends it: ``app.worker(…).run()``."""
        await self.worker(None, options, **given).run()

    def _planned(self, schedule: Schedule) -> Schedule:
        """With its first run from now on; a schedule the store already knows keeps the run planned there."""
        from redrive.handlers.cron import next_after

        values = {name: getattr(schedule, name) for name in Schedule.__dataclass_fields__}
        return Schedule(**{**values, "next_at": next_after(schedule.cron, schedule.timezone, datetime.now(UTC))})

    # -- the store -------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The store of the default connection."""
        return self._main.url

    @property
    def shown_url(self) -> str:
        """Where the store is, without its password."""
        return self._main.shown_url

    def at(self, name: str | None) -> StoreHolder:
        """Returns a connection by its name, the default one for None; refused where there is none of that name."""
        if name is None:
            return self._main
        found = self.connections.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.connections, 1)
            known = f"there are: {', '.join(self.connections)}"
            raise ConnectionUnknown(
                f"there is no connection {name!r}", hint=f"did you mean {close[0]}? {known}" if close else known
            )
        return found

    def connection_of(self, kind: str) -> str:
        """Returns the name of the connection that tasks of a kind go to."""
        return self._main.name if self._routing is None else self._routing.connection_of(kind)

    @staticmethod
    def check_url(url: str) -> None:
        """Refuses a URL that cannot work; nothing is opened."""
        make_store(url)

    def use(self, url: str) -> None:
        """Uses another store than the one written in the code, before anything was done; one that cannot work is
        refused."""
        self.check_url(url)
        self._main.url = url

    async def migrate(self, on: str | None = None) -> list[str]:
        """Bring the store's schema up to date; returns the steps that were taken."""
        return await self.at(on).migrate()

    async def store(self) -> Store:
        """Returns the store of the running event loop, opened. Network stores belong to a loop; SQLite serves them
        all."""
        return await self._main.store()

    def bound_store(self) -> Store:
        """Returns the same store, perhaps not opened yet: a worker opens it itself, and waits for it if it has to."""
        return self._main.bound()

    async def close(self) -> None:
        """Close what this event loop, ``app.sync`` and, for SQLite, the application have open.

        A loop that is shut down in order, as ``asyncio.run`` does it, closes what it has open by itself.
        """
        for holder in self.connections.values():
            await holder.close()
        self.sync.close()

    async def __aenter__(self) -> App:
        await self.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _load_sentry(wanted: str) -> Callable[[TaskEvent], None]:
    """Returns the hook that sends failures to Sentry."""
    try:
        from redrive.integrations.sentry import capture, warn_if_deaf
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"REDRIVE_SENTRY={wanted} needs sentry-sdk, which is not installed ({error.name} is missing)",
            hint="pip install 'redrive[sentry]', or REDRIVE_SENTRY=off",
        ) from error
    warn_if_deaf()
    return capture


def _load_tracing(wanted: str) -> Tracing | None:
    """Returns what makes spans; None, and nothing imported, where nothing is traced."""
    if wanted == "off":
        return None
    try:
        from redrive.observe.tracing import Tracing
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"REDRIVE_TRACING={wanted} needs OpenTelemetry, which is not installed ({error.name} is missing)",
            hint="pip install 'redrive[otel]', or REDRIVE_TRACING=off",
        ) from error
    return Tracing(calls=wanted == "all")


class _Decorator:
    """``@app.task(...)``: keeps the handler's parameters for typed enqueueing."""

    def __init__(self, app: App, kind: str, options: Mapping[str, Any]) -> None:
        self._app = app
        self._kind = kind
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Any]) -> TaskHandler[P]: ...
    @overload
    def __call__(self, function: Callable[..., Any]) -> TaskHandler[...]: ...
    def __call__(self, function: Callable[..., Any]) -> TaskHandler[Any]:
        if isinstance(function, TaskHandler):  # a second kind for the same function
            function = function.function
        # The names visible at the definition: annotations may be text (from __future__ import annotations).
        visible = sys._getframe(1).f_locals
        handler = self._app._register(self._kind, function, {**self._options, "names": visible})
        return TaskHandler(self._app, handler)
