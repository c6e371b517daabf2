"""Registers kinds and their handlers."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from redrive.errors import ConfigError, InvalidInput, PayloadInvalid, PayloadMissing, UnknownKind
from redrive.handlers.events import Hook
from redrive.handlers.functions import check_callable, origin_of, runs_on_the_loop
from redrive.handlers.routing import Routing
from redrive.handlers.signature import PayloadSpec
from redrive.kernel.circuit import Circuit, circuit_of
from redrive.kernel.classify import NO_RULES, FailureRules
from redrive.kernel.commit import KnownNames
from redrive.kernel.duty import Duty
from redrive.kernel.machine import Policy
from redrive.kernel.payload import encode
from redrive.kernel.task import (
    NewTask,
    State,
    Task,
    check_attempts,
    check_int,
    check_name,
    check_priority,
    check_timeout,
)


class KindReserved(InvalidInput):
    """A kind belongs to a feature, and producers do not enqueue it."""

    code = "TASK_KIND_RESERVED"


class ReservedKinds:
    """What the kinds begin with that belong to features, and are not for producers.

    Whoever could enqueue one could have money settled, or a text signed in a customer's name. They are refused here,
    and by ``redrive.enqueue`` of PostgreSQL; a feature's own tasks say that they are (``NewTask.own``). So do the
    idempotency keys that begin with ``redrive:``: whoever took one would keep a feature's task from being made.
    """

    __slots__ = ("_begins", "_whose")

    def __init__(self) -> None:
        self._begins: tuple[str, ...] = ()
        self._whose: dict[str, str] = {}

    def add(self, feature: str, begins: Iterable[str]) -> None:
        """Keeps kinds for a feature."""
        self._whose |= dict.fromkeys(begins, feature)
        self._begins = tuple(self._whose)

    def refuse(self, kind: str) -> None:
        """Refuses a kind that a producer may not enqueue."""
        if kind.startswith(self._begins):
            whose = next(feature for begins, feature in self._whose.items() if kind.startswith(begins))
            raise KindReserved(
                f"the kind {kind[:80]} is kept for the feature {whose}, which enqueues it itself",
                hint="call what the feature offers, or give your kind another name",
            )


DEFAULT_MAX_ATTEMPTS = 5


class Isolation(StrEnum):
    """Where a handler runs."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(slots=True, frozen=True)
class Handler:
    """One kind: its function and how it is run."""

    kind: str
    queue: str
    policy: Policy
    function: Callable[..., Any]
    payload: PayloadSpec
    isolation: Isolation
    timeout: float | None = None
    bulk: int | None = None
    priority: int = 0
    concurrency: int | None = None
    rate_ms: int | None = None
    deterministic: tuple[type[BaseException], ...] = ()
    public: tuple[str, ...] = ()  # payload fields that everybody may see who may look at all
    rules: FailureRules = NO_RULES
    circuit: Circuit | None = None  # with its name
    preload: tuple[str, ...] = ()  # modules that a worker imports before it claims
    says_attempts: bool = False  # its max_attempts was given, and is no default

    @property
    def max_attempts(self) -> int:
        return self.policy.max_attempts


@dataclass(slots=True, frozen=True)
class Declared:
    """A kind that is enqueued here and handled elsewhere."""

    kind: str
    queue: str = "default"
    max_attempts: int = DEFAULT_MAX_ATTEMPTS  # unless the application that handles it says how often
    priority: int = 0
    public: tuple[str, ...] = ()


@dataclass(slots=True)
class Registry:
    """All kinds of an application. A route's queue is used in place of the one that a kind was declared with."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    declared: dict[str, Declared] = field(default_factory=dict)
    rules: FailureRules = field(default_factory=FailureRules)
    routing: Routing | None = None
    hooks: dict[str, list[Hook]] = field(default_factory=dict)  # by the name of their event
    reserved: ReservedKinds = field(default_factory=ReservedKinds)  # those that producers may not enqueue
    brought: set[str] = field(default_factory=set)  # kinds that come with features
    # By what kinds begin with: how many dead workers in a row fail a task, where that is a feature's to say.
    max_deaths: dict[str, int | None] = field(default_factory=dict)
    # Told of tasks that recovery took back, many at once: the kind of each, and whether it had passed its time limit.
    told_reclaimed: list[Callable[[Sequence[tuple[str, bool]]], None]] = field(default_factory=list)
    # Duties that depend on what the application declares: asked for when a worker is made.
    duties: list[Callable[[], Sequence[Duty]]] = field(default_factory=list)
    # Called with the queues of a worker before it begins; raises where they cannot be served from here.
    before_work: list[Callable[[Collection[str]], None]] = field(default_factory=list)

    def add(self, handler: Handler) -> None:
        known = self.handlers.get(handler.kind)
        # The same function again is a module imported twice (as __main__ and by name), not a mistake.
        if known is not None and (one := origin_of(known.function)) != (two := origin_of(handler.function)):
            raise ConfigError(f"the kind {handler.kind} has two handlers: {one} and {two}")
        self.handlers[handler.kind] = replace(handler, queue=self.queue_of(handler.kind, handler.queue))

    def declare(self, declared: Declared) -> None:
        self.declared[declared.kind] = replace(declared, queue=self.queue_of(declared.kind, declared.queue))

    def queue_of(self, kind: str, declared: str) -> str:
        """Returns the queue of a kind: its route's, else the one it was declared with."""
        return declared if self.routing is None else self.routing.queue_of(kind) or declared

    def max_deaths_of(self, kind: str, usual: int) -> int | None:
        """Returns how many dead workers in a row fail a task of this kind; None where that is no number of them."""
        for begins, most in self.max_deaths.items():
            if kind.startswith(begins):
                return None if most is None else max(most, usual)
        return usual

    def known(self, kind: str) -> Handler | Declared | None:
        return self.handlers.get(kind) or self.declared.get(kind)

    def refuse_unknown(self, kind: str) -> None:
        """Refuses a kind that is about to be enqueued and unknown here; any is fine if the application has none of its
        own."""
        known = [name for name in (*self.handlers, *self.declared) if name not in self.brought]
        own = [name for name in known if not name.startswith("SYSTEM_")]
        if own:
            close = difflib.get_close_matches(kind, own, 1)
            guess = f"did you mean {close[0]}? " if close else f"known kinds: {', '.join(sorted(own)[:20])}; "
            raise UnknownKind(
                f"this application has no kind {kind!r}",
                hint=f"{guess}declare a kind that is handled elsewhere with app.declare({kind!r}, queue=…)",
            )

    def connections_of(self, target: str, name: str, default: str) -> set[str]:
        """Returns the connections to which tasks of a ``kind`` or ``queue`` go by the code and its routes."""
        queues = {kind: one.queue for kind, one in self.handlers.items()}
        queues |= {kind: one.queue for kind, one in self.declared.items()}
        routing = self.routing or Routing(default, {})
        if target == "kind":
            return {routing.connection_of(name)} if name in queues or routing.of(name) is not None else set()
        if target != "queue":
            return set()
        going = {routing.connection_of(kind) for kind, queue in queues.items() if queue == name}
        return routing.connections_of(name) | going

    def queues(self) -> set[str]:
        return {h.queue for h in self.handlers.values()} | {d.queue for d in self.declared.values()}

    def spellings(self, new: NewTask) -> Iterator[NewTask]:
        """Yields the same task with its payload written in other ways, by which a key may know it."""
        handler = self.handlers.get(new.kind)
        for payload in [] if handler is None else handler.payload.spellings(new.payload):
            yield replace(new, payload=payload)

    def same_work(self, new: NewTask, known: Task) -> bool:
        """Returns whether a task that has the key of a new one is the same work, though its payload is written
        otherwise: what one of them leaves out is the handler's default. A completed task has no payload any more."""
        handler = self.handlers.get(new.kind)
        if handler is None or (new.kind, new.queue) != (known.kind, known.queue) or known.state is State.COMPLETED:
            return False
        try:
            theirs = None if known.payload is None else encode(known.payload)
            return bool(handler.payload.with_defaults(new.payload) == handler.payload.with_defaults(theirs))
        except (PayloadInvalid, PayloadMissing):
            return False

    def names(self, used: Iterable[str] = (), queues: Iterable[str] = (), most: int | None = None) -> KnownNames:
        """Returns what the application declares and routes, for the store. ``used``: kinds, of which those are meant
        too that a pattern of a route fits; ``queues``: more of these."""
        routing = self.routing or Routing("", {})
        routed = {kind for kind in used if routing.of(kind) is not None}
        kinds = {*self.handlers, *self.declared, *routing.kinds, *routed}
        found = {*self.queues(), *(one.queue for one in self.declared.values()), *routing.queues, *queues}
        attempts = {kind: one.max_attempts if one.says_attempts else None for kind, one in self.handlers.items()}
        return KnownNames(tuple(sorted(found)), tuple(sorted(kinds)), most, attempts)

    def declares(self, task: NewTask) -> bool:
        """Returns whether the application declares or routes the kind and the queue of a task."""
        known = self.known(task.kind)
        if known is not None and known.queue == task.queue:
            return True
        names = self.names((task.kind,))
        return task.kind in names.kinds and task.queue in names.queues

    def feature_queues(self) -> set[str]:
        """Returns queues that only kinds of features have."""
        own = {one.queue for kind, one in self.handlers.items() if kind not in self.brought}
        return self.queues() - own - {one.queue for one in self.declared.values()}


def make_handler(
    kind: str,
    function: Callable[..., Any],
    *,
    policy: Policy,
    queue: str = "default",
    timeout: float | None = None,
    isolation: str | None = None,
    bulk: int | None = None,
    payload: Any = None,
    priority: int = 0,
    concurrency: int | None = None,
    rate_limit_ms: int | None = None,
    deterministic: tuple[type[BaseException], ...] = (),
    names: Mapping[str, Any] | None = None,
    public: Iterable[str] = (),
    circuit: Circuit | bool | None = None,
    preload: Iterable[str] = (),
) -> Handler:
    """Returns a handler after checking everything an application said about its kind, at import time."""
    check_name(kind, "kind")
    check_name(queue, "queue")
    check_callable(kind, function)
    check_attempts(policy.max_attempts)
    check_priority(priority)
    if timeout is not None:
        check_timeout(timeout)
    if bulk is not None:
        check_int(bulk, "bulk", 1, 10_000)
    for name, value in (("concurrency", concurrency), ("rate_limit_ms", rate_limit_ms)):
        if value is not None:
            check_int(value, name, 1, 86_400_000)
    final = _exceptions(kind, deterministic)
    where = _isolation(kind, function, isolation, bulk)
    if where is Isolation.PROCESS:
        _check_importable(kind, function, final)
    spec = PayloadSpec(kind, function, payload, bulk=bulk is not None, names=names)
    return Handler(
        kind=kind,
        queue=queue,
        policy=policy,
        function=function,
        payload=spec,
        timeout=timeout,
        bulk=bulk,
        isolation=where,
        priority=priority,
        concurrency=concurrency,
        rate_ms=rate_limit_ms,
        deterministic=final,
        public=check_public(kind, public),
        circuit=circuit_of(kind, circuit),
        preload=_names(kind, "preload", "modules", preload, _is_module),
    )


def check_public(kind: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns ``public=`` as a tuple."""
    return _names(kind, "public", "payload fields", names, bool)


def _names(kind: str, option: str, what: str, given: Iterable[str], fits: Callable[[str], bool]) -> tuple[str, ...]:
    """Returns names as a tuple; a lone text would be taken for its letters."""
    listed = (given,) if isinstance(given, str) else tuple(given)
    for name in listed:
        if not isinstance(name, str) or not fits(name):
            raise InvalidInput(f"{option}= of {kind} lists names of {what}, and {name!r} is none")
    return listed


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _isolation(kind: str, function: Callable[..., Any], wanted: str | None, bulk: int | None) -> Isolation:
    natural = Isolation.LOOP if runs_on_the_loop(function) else Isolation.THREAD
    if wanted is None:
        return natural
    try:
        isolation = Isolation(wanted)
    except ValueError:
        raise InvalidInput(f"isolation of {kind} must be 'process' or left out, not {wanted!r}") from None
    if isolation is not Isolation.PROCESS and isolation is not natural:
        raise InvalidInput(f"the handler of {kind} runs on the {natural}; isolation {isolation} does not fit it")
    if isolation is Isolation.PROCESS and bulk:
        raise InvalidInput(f"the handler of {kind} cannot be both bulk and process-isolated")
    return isolation


def _exceptions(kind: str, given: Any) -> tuple[type[BaseException], ...]:
    """Returns ``deterministic=`` as a tuple; one exception, or a list of them, may be given as well."""
    found = (given,) if isinstance(given, type) else tuple(given)
    for one in found:
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise InvalidInput(f"deterministic= of {kind} lists exceptions, and {one!r} is none")
    return found


def _check_importable(kind: str, function: Callable[..., Any], deterministic: tuple[type[BaseException], ...]) -> None:
    """Refuses a function for a process that cannot be imported there: the other process gets names, not objects."""
    what = _why_not_importable(function)
    if what:
        raise InvalidInput(
            f"the handler of {kind} is {what} and cannot run in a process of its own",
            hint="define it with def at the top of a module, where the other process can import it",
        )
    for error in deterministic:
        if "<locals>" in error.__qualname__:
            raise InvalidInput(
                f"the handler of {kind} runs in a process of its own, which cannot import {error.__qualname__}",
                hint="define exceptions of deterministic= at the top of a module",
            )


def _why_not_importable(function: Callable[..., Any]) -> str | None:
    name = getattr(function, "__qualname__", "<object>")
    if isinstance(function, types.MethodType) and not isinstance(function.__self__, type):
        return "a method of an object"
    if "<" in name:
        return "a lambda" if "<lambda>" in name else "inside a function" if "<locals>" in name else "not a function"
    return None
