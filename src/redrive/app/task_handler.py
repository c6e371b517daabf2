"""What ``@app.task`` makes of a function: something to call as before, or to enqueue, typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Unpack, overload

from redrive.errors import InvalidInput
from redrive.handlers.context import Context
from redrive.handlers.new_task import make_task
from redrive.handlers.options import EnqueueOptions, check_options
from redrive.handlers.registry import Handler, Registry
from redrive.handlers.signature import Call
from redrive.kernel.task import NewTask, Task
from redrive.sync import SyncApp

P = ParamSpec("P")
Register = Callable[[str, Callable[..., Any], Mapping[str, Any]], Handler]


class Enqueues(Protocol):
    """The application, as far as a handler needs it."""

    sync: SyncApp
    registry: Registry

    async def enqueue(self, kind: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Task: ...


class TaskHandler(Generic[P]):
    """What ``@app.task`` leaves in place of the function: call it as before, or enqueue it, typed."""

    def __init__(self, app: Enqueues, handler: Handler, options: EnqueueOptions | None = None) -> None:
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

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Returns a task of a call, checked as by ``enqueue``. Nothing is enqueued: it is for a batch, or for what
        follows one: ``on_complete=report.new(month=5)``."""
        for name in ("connection", "on"):
            if name in self._options:
                raise InvalidInput(
                    f"{name}= is said where a task is enqueued, and {self.kind} is only made here",
                    hint=f"give {name}= to what takes the task: enqueue_many(…, {name}=…), batch(…, {name}=…)",
                )
        options: dict[str, Any] = {**self._options}
        return make_task(self._app.registry, self.kind, Call(args, kwargs), **options)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Enqueue a call: the handler gets these arguments as they are given here, or this refuses them."""
        return await self._app.enqueue(self.kind, Call(args, kwargs), **self._options)

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Task:
        """``enqueue`` from code without an event loop."""
        return self._app.sync.enqueue(self.kind, Call(args, kwargs), **self._options)


class TaskDecorator:
    """``@app.task(...)``: keeps the handler's parameters for typed enqueueing."""

    def __init__(self, app: Enqueues, register: Register, kind: str, options: Mapping[str, Any]) -> None:
        self._app = app
        self._register = register
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
        handler = self._register(self._kind, function, {**self._options, "names": visible})
        return TaskHandler(self._app, handler)
