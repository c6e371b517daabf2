"""The application: kinds, schedules, a store, and everything that is done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack
from uuid import UUID

from redrive.app.access import Access
from redrive.app.connections import Connections
from redrive.app.extras import load_tracing
from redrive.app.producer import Producer
from redrive.app.task_handler import TaskDecorator
from redrive.errors import (
    ConfigError,
    InvalidInput,
)
from redrive.features import features_of, load
from redrive.handlers import builtin
from redrive.handlers.events import TaskEvent, check_event, check_takes_event
from redrive.handlers.functions import name_of
from redrive.handlers.kinds import DEFAULTS
from redrive.handlers.new_task import GivenTask, NewTasks, as_enqueued, make_task
from redrive.handlers.options import DEFAULT_HISTORY, TaskOptions, check_history, check_options
from redrive.handlers.registry import DEFAULT_MAX_ATTEMPTS, Declared, Handler, Registry, check_public, make_handler
from redrive.kernel.applied import Applied
from redrive.kernel.circuit import Circuit
from redrive.kernel.classify import Classification
from redrive.kernel.commit import Commit, Schedule
from redrive.kernel.machine import Policy
from redrive.kernel.ports.reads import get_task
from redrive.kernel.task import (
    Task,
    check_attempts,
    check_name,
    check_priority,
)
from redrive.settings import Options, Settings, load_settings, store_url
from redrive.stores import make_store
from redrive.stores.django_tests import connection_in_tests, in_django
from redrive.stores.loops import StoreHolder
from redrive.sync import Portal, SyncApp

# Workers and operators are imported by whoever asks for one: most processes of an application only enqueue.
if TYPE_CHECKING:
    from redrive.app.failed_tasks import FailedTasks
    from redrive.kernel.failure_rule import FailureRule
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store
    from redrive.observe.logs import TaskLog
    from redrive.ops.access import Caller
    from redrive.ops.operator import Operator
    from redrive.ops.why import Reason
    from redrive.remote.checked import RemoteProvider
    from redrive.remote.provider import Provider
    from redrive.remote.registry import ProviderRegistry
    from redrive.worker.config import WorkerOptions
    from redrive.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Classifier = TypeVar("Classifier", bound=Callable[[BaseException], Classification | None])
Fingerprinter = TypeVar("Fingerprinter", bound=Callable[[BaseException], str | None])
Listener = TypeVar("Listener", bound=Callable[[TaskEvent], Any])
MISSED = ("coalesce", "all", "skip")
DEFAULT_NAME = "default"
# From here on the first tasks of a list are sent while the next are made.
MANY = 600


class App:
    """``App(url)`` uses that store, ``App()`` that of ``REDRIVE_URL``, else ``sqlite:///redrive.db`` in this directory.

    ``features`` bring tables, kinds, routes and duties of their own, besides those that are installed.
    ``failure_rules`` say what failures count as, before redrive's own table does; those of ``redrive.toml`` come first.
    ``name`` says whose schedules these are. Without one, ``redrive work`` and ``up`` use the application's import path.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = DEFAULT_NAME,
        settings: Settings | None = None,
        features: Iterable[Feature] = (),
        failure_rules: Iterable[FailureRule | Mapping[str, Any]] = (),
    ) -> None:
        self.features = features_of(features)
        known = settings if settings is not None else load_settings(url=url, features=self.features)
        self.settings = known.with_features(self.features)
        self.connections = Connections(self.settings, url or store_url(self.settings), self.features)
        self.name = check_name(name, "app name")
        self.owner = self.name
        self.spec: str | None = None  # where commands import it from, for those that pages show
        self.registry = Registry(routing=self.connections.routing)
        # Those of the settings come first: whoever runs an application can correct what it says.
        self.registry.rules.table.extend(self.settings.failure_rules)
        if failure_rules != ():
            from redrive.kernel.failure_rule import check_rules

            self.registry.rules.table.extend(check_rules(failure_rules))
        self.schedules: dict[str, Schedule] = {}
        self.sync = SyncApp(self, Portal())
        self.connections.check("" if url is not None or settings is not None else "REDRIVE_URL")
        self.tracing = load_tracing(self.settings.tracing)
        self.access = Access(self.settings, self.store, several=len(self.connections) > 1)
        self._producer = Producer(self.registry, self.features, self.tracing)
        for kind, function in (
            (builtin.HEALTH_CHECK, builtin.health_check),
            (builtin.FAIL_ALWAYS, builtin.fail_always),
            (builtin.DRILL, builtin.drill),
        ):
            self._register(kind, function, {"max_attempts": 3})
        self._services: dict[Any, Any] = {}
        self._providers: ProviderRegistry | None = None
        self._take_up(self.features)

    def _take_up(self, features: Iterable[Feature]) -> None:
        taken = {*dir(type(self)), *vars(self)}
        for feature in features:
            for name in feature.services:
                if name in taken:
                    raise ConfigError(
                        f"the feature {feature.name!r} cannot put {name!r} on the application, which has that already"
                    )
            taken.update(feature.services)
            self.registry.reserved.add(feature.name, feature.reserved_kinds)
            self.registry.max_deaths.update(feature.max_deaths)
            if feature.kinds is not None:
                feature.kinds.add_to(partial(self.register_for, feature.name))
            if feature.declare is not None:
                feature.declare(self)
            if feature.provider is not None:
                for name in self.settings.providers:
                    feature.provider(self, name)
            if feature.retention is not None:
                from redrive.stores.features import check_statements

                check_statements(feature, feature.retention(self.settings))

    def register_for(
        self, feature: str, kind: str, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Handler:
        """Register a handler of a feature's own kind, with the options of ``task``: for kinds that depend on the
        application. Others are in ``Feature.kinds``."""
        if self.registry.routing is not None:
            self.registry.routing.exempt(kind, feature)
        self.registry.brought.add(kind)
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
        max_attempts: int | None = None,
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
        circuit: Circuit | bool | None = None,
        preload: Iterable[str] = (),
    ) -> TaskDecorator:
        """Register a handler for a kind.

        ``async def`` handlers run on the event loop, ``def`` handlers in threads, ``isolation="process"`` ones in a
        process that is killed at its timeout. ``bulk=N`` handlers get a ``Bulk`` of up to N tasks.
        ``concurrency`` and ``rate_limit_ms`` hold for the whole fleet. ``deterministic`` lists exceptions that
        another attempt would not cure. ``max_attempts`` (5 without it) goes before that of a producer's ``declare``.
        ``public`` names payload fields that viewers may see (short values only): an
        order's number, not its address. ``history`` says how long completed tasks of this kind are kept, if shorter
        than ``REDRIVE_HISTORY_DAYS``: ``"15m"``, ``"1h"``, ``"2d"`` or seconds; ``None``: they leave nothing.
        ``circuit``: while its other side is down, tasks of this kind wait and use no attempts: ``True``, or a
        ``Circuit`` that says when. ``preload`` names modules that the handler imports inside: a worker of its queue
        has them before it claims, and whoever only enqueues does without.
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
            "circuit": circuit,
            "preload": preload,
        }
        return TaskDecorator(self, self._register, kind, options)

    def declare(
        self,
        kind: str,
        *,
        queue: str = "default",
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        priority: int = 0,
        public: Iterable[str] = (),
    ) -> None:
        """A kind that this application enqueues and another one handles. ``max_attempts`` holds where the handler's
        application does not say how often, and until a worker of it has started for the first time."""
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

    def provider(self, name: str, provider: Provider) -> None:
        """Register a provider of remote jobs by a name: ``app.provider("video", Video())``. One over HTTP can be
        configured instead, as ``[providers.video]`` in ``redrive.toml``."""
        self.providers.add(name, provider)
        for feature in self.features:
            if feature.provider is not None:
                feature.provider(self, name)

    def provider_of(self, name: str) -> RemoteProvider:
        """Returns a provider by its name, registered or configured; its answers are checked, and what it raises is
        classified."""
        return self.providers.of(name)

    @property
    def providers(self) -> ProviderRegistry:
        """The providers of this application, by name."""
        if self._providers is None:
            from redrive.remote.registry import ProviderRegistry

            self._providers = ProviderRegistry(
                self.settings.providers, self.registry.rules, self.settings.provider_call_seconds
            )
        return self._providers

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
            check_takes_event(name, function)
            self.registry.hooks.setdefault(name, []).append(function)
            return function

        return register

    def _register(self, kind: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Handler:
        given = dict(options)
        base, most = given.pop("backoff_base", None), given.pop("backoff_max", None)
        default = self.settings.backoff
        backoff = type(default)(default.base if base is None else base, default.maximum if most is None else most)
        attempts = given.pop("max_attempts", None)
        says, attempts = attempts is not None, DEFAULT_MAX_ATTEMPTS if attempts is None else attempts
        policy = Policy(attempts, backoff, given.pop("history", None), tries=given.pop("tries", None))
        made = make_handler(kind, function, policy=policy, **{**DEFAULTS, **given})
        handler = replace(made, rules=self.registry.rules, says_attempts=says)
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
        **options: Unpack[TaskOptions],
    ) -> Task:
        """Enqueue one task; when this returns, it is durable.

        With ``connection`` (psycopg, asyncpg, sqlite3, SQLAlchemy, Django) it becomes part of that connection's
        transaction instead: the caller's commit makes it visible, a rollback leaves nothing. With a
        known ``idempotency_key`` the existing task is returned; if that one has another kind, queue or payload,
        ``IdempotencyConflict`` is raised. ``join`` makes it a member of one; a handler names that of its own task:
        ``join=ctx.task.join``. ``on`` names the connection (of ``redrive.toml``) that it goes to, in place of the
        kind's route; a join, and the transaction of ``connection``, have to be on the same one.

        ``queue``, ``priority`` (smaller ones first), ``max_attempts`` and ``timeout`` (seconds) are the kind's where
        they are not given. ``delay`` (seconds) or ``run_at`` say when it may run. ``group`` and ``scope`` are labels to
        find it by, ``trace_id`` says which request it belongs to.
        """
        new = make_task(self.registry, kind, payload, **check_options(options))
        where = self._where((kind,), on, connection)
        [answer] = await self._producer.put([new], where, connection)
        return as_enqueued(new) if answer.created else await self._producer.known(new, answer, where, connection)

    async def enqueue_many(
        self, tasks: Sequence[GivenTask], *, connection: Any = None, on: str | None = None
    ) -> list[Task]:
        """Enqueue many at once: all or none. Each is ``(kind, payload)`` or a dict of ``enqueue``'s arguments; leave
        them as they are until this returns.

        With ``connection``, a conflicting key raises and leaves the decision to the caller's transaction. All go to
        one connection, that of their routes or ``on``: tasks with different ones are refused.
        """
        new = NewTasks(self.registry, tasks)
        where = self._where(new.kinds, on, connection)
        in_parts = len(new) > MANY and connection is None and new.may_be_parted
        if not in_parts:
            new.make(len(new))
        if not new:
            return []
        answers = await self._producer.put(new, where, connection, in_parts=in_parts)
        return [
            as_enqueued(task) if answer.created else await self._producer.known(task, answer, where, connection)
            for task, answer in zip(new, answers, strict=True)
        ]

    async def apply(self, commit: Commit, *, connection: Any = None, on: str | None = None) -> Applied:
        """Applies a Commit, all of it or nothing: for features, whose services make them.

        With ``connection`` (as in ``enqueue``) it becomes part of that connection's transaction. Then it may add tasks,
        joins, postings, rows and audit rows, and close joins. It lands on one connection: that of its tasks, which
        have to agree, or ``on``.
        """
        at = self.connections
        where = at.main if at.routed is None and on is None else at.for_commit(commit, on, connection)
        return await self._producer.apply(commit, where, connection)

    def connection_in_tests(self, kinds: Iterable[str], on: str | None) -> Any | None:
        """Returns the Django connection that tasks of these kinds are enqueued on while its tests run, and have
        replaced the database that they would go to; None otherwise."""
        return connection_in_tests(self._where(kinds, on, None).url) if in_django() else None

    def _where(self, kinds: Iterable[str], on: str | None, connection: Any) -> StoreHolder:
        at = self.connections
        return at.main if at.routed is None and on is None else at.for_kinds(kinds, on, connection)

    # -- looking and acting ----------------------------------------------------------------------------------------

    async def get(self, task_id: UUID | str) -> Task | None:
        """Returns a task by its id, live or finished."""
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        return await get_task(await self.connections.store_with(wanted), wanted)

    async def cancel(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        """Cancel a waiting task now, or ask a running one to stop."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        result = await actions.cancel(await self.connections.store_with(wanted), [wanted], actor=actor, reason=reason)
        actions.insist(result, "cancelled")

    async def retry(self, task_id: UUID | str, *, actor: str = "app", reason: str | None = None) -> None:
        """Run a failed or cancelled task again."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id

        wanted = parse_id(str(task_id))
        result = await actions.retry(await self.connections.store_with(wanted), [wanted], actor=actor, reason=reason)
        actions.insist(result, "retried")

    @property
    def failed(self) -> FailedTasks:
        """Tasks that are failed now: ``await app.failed.list(kind="SEND")``, ``retry_many``, ``statistics``."""
        from redrive.app.failed_tasks import FailedTasks

        return FailedTasks(self.store)

    async def operator(self, caller: Caller, on: str | None = None) -> Operator:
        """Returns the service through which a caller looks at this application's tasks and acts on them, by role: those
        of the default connection, or of another."""
        from redrive.ops.operator import Operator
        from redrive.ops.operator.session import Policy as OperatingPolicy

        policy, where = OperatingPolicy.of(self.settings), self.at(on)
        return Operator(
            await where.store(),
            self.registry,
            policy,
            caller,
            where.name,
            features=self.features,
            connections=tuple(self.connections),
            peers=self.operator,
        )

    async def why(self, task_id: UUID | str) -> list[Reason]:
        """Returns why a task does not run; nothing when it does, or is done."""
        from redrive.ops import actions
        from redrive.ops.inspect import parse_id
        from redrive.ops.why import why as explain

        wanted = parse_id(str(task_id))
        store = await self.connections.store_with(wanted)
        return await explain(store, await actions.require(store, wanted))

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
        from redrive.app.workers import make_worker
        from redrive.worker.config import make_options

        if options is not None and given:
            raise InvalidInput("give the worker's options by name, or as one Options, not both")
        chosen = options or make_options(given, self.queues(), self.settings)
        if self.settings.providers:
            self.providers.check()
        return make_worker(self, chosen, self.at(on), store, log)

    def queues(self) -> tuple[str, ...]:
        """Returns every queue that a handler of this application uses: ``default`` first, those of features last, in
        the order in which these declare them: a worker drains the first one first."""
        brought = self.registry.feature_queues()
        found = dict.fromkeys(handler.queue for handler in self.registry.handlers.values())
        return tuple(sorted(found, key=lambda one: (one != "default", one in brought, "" if one in brought else one)))

    async def run_worker(self, options: Options | None = None, **given: Unpack[WorkerOptions]) -> None:
        """Run a worker in this event loop until it is cancelled or an option ends it: ``app.worker(…).run()``."""
        await self.worker(None, options, **given).run()

    # -- the store -------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The store of the default connection."""
        return self.connections.main.url

    @property
    def shown_url(self) -> str:
        """Where the store is, without its password."""
        return self.connections.main.shown_url

    def at(self, name: str | None) -> StoreHolder:
        """Returns a connection by its name, the default one for None; refused where there is none of that name."""
        return self.connections.at(name)

    def connection_of(self, kind: str) -> str:
        """Returns the name of the connection that tasks of a kind go to."""
        return self.connections.of_kind(kind)

    def connections_of(self, target: str, name: str) -> set[str]:
        """Returns the connections to which tasks of a ``kind`` or ``queue`` go by the code and its routes."""
        return self.registry.connections_of(target, name, self.connections.main.name)

    @staticmethod
    def check_url(url: str) -> None:
        """Refuses a URL that cannot work; nothing is opened."""
        make_store(url)

    def use(self, url: str) -> None:
        """Uses another store than the one written in the code, before anything was done; one that cannot work is
        refused."""
        self.check_url(url)
        self.connections.main.url = url

    async def migrate(self, on: str | None = None) -> list[str]:
        """Bring the store's schema up to date; returns the steps that were taken."""
        return await self.at(on).migrate()

    async def store(self) -> Store:
        """Returns the store of the running event loop, opened. Network stores belong to a loop; SQLite serves them
        all."""
        return await self.connections.main.store()

    async def close(self) -> None:
        """Close what this event loop, ``app.sync`` and, for SQLite, the application have open.

        A loop that is shut down in order, as ``asyncio.run`` does it, closes what it has open by itself.
        """
        await self.connections.close()
        if self._providers is not None:
            await self._providers.close()
        self.sync.close()

    async def __aenter__(self) -> Self:
        await self.store()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
