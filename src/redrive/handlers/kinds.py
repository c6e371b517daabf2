"""Kinds that are declared before there is an application: those of a feature, which every application that has it takes
up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Unpack, overload

from redrive.handlers.context import Context
from redrive.handlers.new_task import make_task
from redrive.handlers.options import DEFAULT_HISTORY, KindOptions, NewTaskOptions, check_history
from redrive.handlers.registry import DEFAULT_MAX_ATTEMPTS, Registry, make_handler
from redrive.handlers.signature import Call
from redrive.kernel.machine import Policy
from redrive.kernel.outcome import Fail
from redrive.kernel.task import NewTask, check_own_key

P = ParamSpec("P")
Register = Callable[[str, Callable[..., Any], Mapping[str, Any]], Any]
# Options that are no arguments of a handler.
_POLICY = ("max_attempts", "history", "backoff_base", "backoff_max")


class Kind(Generic[P]):
    """What ``@kinds.task`` leaves in place of the function: call it as before, or make a task of it, typed."""

    def __init__(
        self, kind: str, function: Callable[..., Any], registry: Registry, options: NewTaskOptions | None = None
    ) -> None:
        self.kind = kind
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)
        self._registry = registry
        self._options: NewTaskOptions = options or {}

    def __repr__(self) -> str:
        return f"<the kind {self.kind}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[NewTaskOptions]) -> Kind[P]:
        """The same kind with options of its tasks: ``deliver.options(scope="bob").new(address="here")``."""
        return Kind(self.kind, self.function, self._registry, {**self._options, **options})

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Returns a task that calls the handler with these arguments, which are checked here, and has the kind's queue,
        priority and attempts. Nothing is enqueued: it belongs into a Commit, Effects or a NewJoin."""
        options: NewTaskOptions = {**self._options}
        key = options.pop("idempotency_key", None)  # one that producers may not have
        made = make_task(self._registry, self.kind, Call(args, kwargs), **options)
        made.own, made.idempotency_key = True, check_own_key(key)
        return made


class Kinds:
    """The kinds of a feature (``Feature.kinds``)."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._given: list[tuple[str, Callable[..., Any], Mapping[str, Any]]] = []

    def task(self, kind: str, **options: Unpack[KindOptions]) -> _Decorator:
        """Declares the handler of a kind, with the options of ``App.task``."""
        return _Decorator(self, kind, options)

    def add_to(self, register: Register) -> None:
        """Registers all of them with an application."""
        for kind, function, options in self._given:
            register(kind, function, options)

    def _add(self, kind: str, function: Callable[..., Any], given: Mapping[str, Any]) -> Kind[Any]:
        options = {**given, "history": check_history(kind, given.get("history", DEFAULT_HISTORY))}
        self._given.append((kind, function, options))
        plain = {name: value for name, value in options.items() if name not in _POLICY}
        policy = Policy(options.get("max_attempts", DEFAULT_MAX_ATTEMPTS))
        self._registry.add(make_handler(kind, function, policy=policy, **plain))
        return Kind(kind, function, self._registry)


class _Decorator:
    """``@kinds.task(...)``: keeps the handler's parameters for typed tasks."""

    def __init__(self, kinds: Kinds, kind: str, options: KindOptions) -> None:
        self._kinds = kinds
        self._kind = kind
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Any]) -> Kind[P]: ...
    @overload
    def __call__(self, function: Callable[..., Any]) -> Kind[...]: ...
    def __call__(self, function: Callable[..., Any]) -> Kind[Any]:
        # The names visible at the definition: annotations may be text (from __future__ import annotations).
        visible = sys._getframe(1).f_locals
        return self._kinds._add(self._kind, function, {**self._options, "names": visible})


# -- kinds that every application has, for checks and drills -----------------------------------------------------------

HEALTH_CHECK = "SYSTEM_HEALTH_CHECK"
FAIL_ALWAYS = "SYSTEM_FAIL_ALWAYS"
DRILL = "SYSTEM_DRILL"


async def health_check(ctx: Context, **_: Any) -> dict[str, Any]:
    """Completes: proof that enqueue, claim, run and settle work."""
    return {"ok": True, "worker": ctx.worker_id}


async def fail_always(ctx: Context, **_: Any) -> None:
    """Fails each time and is retried until its attempts are used up."""
    raise RuntimeError(f"{FAIL_ALWAYS} failed on purpose (attempt {ctx.attempt})")


async def drill(ctx: Context, drill_id: str) -> dict[str, Any]:
    """Fails for good until somebody retries it, then completes: what an operator practises on."""
    if ctx.task.replay_count == 0:
        raise Fail("TASK_PRECONDITION_FAILED", f"drill {drill_id}: failed on purpose, retry me")
    return {"drill_id": drill_id, "effect": "done", "replays": ctx.task.replay_count}


BUILT_IN: tuple[tuple[str, Callable[..., Any]], ...] = (
    (HEALTH_CHECK, health_check),
    (FAIL_ALWAYS, fail_always),
    (DRILL, drill),
)
