"""Processes for handlers that must be killable: CPU-bound work, native code that hangs or crashes."""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from redrive.errors import ConfigError, RedriveError
from redrive.handlers.context import Context
from redrive.handlers.context import logger as task_logger
from redrive.handlers.registry import Handler
from redrive.kernel.failure import failure_of
from redrive.kernel.outcome import Cancel, Fail, Failed, Retry, Snooze, Verdict
from redrive.kernel.summary import Payload
from redrive.kernel.task import Claimed


class ProcessDied(RuntimeError):
    """The child ended without an answer: killed by the kernel, crashed in native code, or called ``os._exit``."""


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    pipe: Connection


@dataclass(slots=True, frozen=True)
class Job:
    """What a child needs to run one attempt: everything here is pickled."""

    module: str
    name: str
    task: Claimed
    arguments: dict[str, Any]
    worker_id: str
    log_level: int = logging.INFO


class ProcessPool:
    """Children are started when needed, reused, and replaced when killed."""

    def __init__(self, on_progress: Callable[[Claimed, str], None]) -> None:
        # spawn: a forked copy of a process with threads and sockets is not a safe place to run code.
        self._start = multiprocessing.get_context("spawn")
        self._idle: list[_Child] = []
        self._on_progress = on_progress

    async def run(
        self, handler: Handler, task: Claimed, arguments: dict[str, Any], worker_id: str,
        on_start: Callable[[], None] = lambda: None,
    ) -> Any:  # fmt: skip
        """Run one attempt; cancelling this coroutine kills the child. ``on_start``: the handler is about to be called,
        its process has started and has imported it."""
        module, name = _address(handler)
        child = self._idle.pop() if self._idle else await asyncio.to_thread(self._spawn)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        job = Job(module, name, task, arguments, worker_id, task_logger.getEffectiveLevel())
        # In a thread, the sending too: a large payload fills the pipe until the child has started and reads.
        threading.Thread(
            target=self._talk, args=(child, job, loop, answer, on_start), name=f"redrive-process-{child.process.pid}",
            daemon=True,
        ).start()  # fmt: skip
        try:
            outcome = await answer
        except asyncio.CancelledError:
            _kill(child)
            raise
        except ProcessDied:
            _kill(child)
            raise ProcessDied(_epitaph(child)) from None
        except Exception:
            # The job or its answer does not travel between processes; what the child does now is unknown.
            _kill(child)
            raise
        self._idle.append(child)
        return outcome

    def close(self) -> None:
        while self._idle:
            child = self._idle.pop()
            with contextlib.suppress(OSError):
                child.pipe.close()  # end of file: the child leaves by itself
            child.process.join(1)
            _kill(child)

    def _spawn(self) -> _Child:
        ours, theirs = self._start.Pipe()
        process = self._start.Process(target=serve, args=(theirs,), name="redrive-handler", daemon=True)
        process.start()
        theirs.close()
        return _Child(process, ours)

    def _talk(
        self, child: _Child, job: Job, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any],
        on_start: Callable[[], None],
    ) -> None:  # fmt: skip
        def post(call: Callable[..., Any], *args: Any) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call, *args)

        def finish(value: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_exception(error) if error else answer.set_result(value)

        try:
            child.pipe.send(job)
            while (message := child.pipe.recv())[0] != "done":
                match message:
                    case "progress", progress:
                        post(self._on_progress, job.task, progress)
                    case "log", fields:
                        _log(fields)
                    case "started", _:
                        post(on_start)
            post(finish, message[1], None)
        except (EOFError, OSError):
            post(finish, None, ProcessDied())
        except Exception as error:  # pickling runs the application's code: it may raise anything
            post(finish, None, error)


def _log(fields: dict[str, Any]) -> None:
    """A record of the child, said here, where logging is set up."""
    record = logging.makeLogRecord(fields)
    if task_logger.isEnabledFor(record.levelno):
        task_logger.handle(record)


def _kill(child: _Child) -> None:
    if child.process.is_alive():
        child.process.kill()
    child.process.join(5)
    with contextlib.suppress(OSError):
        child.pipe.close()


def _epitaph(child: _Child) -> str:
    code = child.process.exitcode
    if code is not None and code < 0:
        return f"the handler's process was ended by {signal.Signals(-code).name}"
    return f"the handler's process ended with exit code {code} and no answer"


def _address(handler: Handler) -> tuple[str, str]:
    """Where a child finds the function. Only what can be imported can run in another process."""
    function = handler.function
    if "<locals>" in function.__qualname__:
        raise ConfigError(f"the handler of {handler.kind} is defined inside a function and cannot run in a process")
    return function.__module__, function.__qualname__


def _remake(kind: type[Verdict], args: tuple[Any, ...], values: dict[str, Any]) -> Verdict:
    verdict = kind.__new__(kind, *args)
    vars(verdict).update(values)
    return verdict


# An exception is unpickled by calling its class with its text, which is not what these take.
for _kind in (Snooze, Retry, Fail, Cancel):
    copyreg.pickle(_kind, lambda said: (_remake, (type(said), said.args, vars(said))))


# -- in the child ---------------------------------------------------------------------------------------------------


class _Line:
    """The pipe to the worker, for all threads of the child."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, what: str, value: Any) -> None:
        with self._lock:
            self._pipe.send((what, value))


class _Forward(logging.Handler):
    """Sends what ``ctx.log`` says to the worker: nobody has set up logging in a child."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {name: _plain(value) for name, value in vars(record).items()}
            fields |= {"msg": record.getMessage(), "args": None, "exc_info": None}
            if record.exc_info:
                fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
            self._line.send("log", fields)
        except Exception:
            self.handleError(record)


def _plain(value: Any) -> Any:
    """Something that travels: types of the application's own may not."""
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


class _ChildRuntime:
    """The handler's side of ``ctx`` in a child: progress goes up the pipe."""

    def __init__(self, line: _Line) -> None:
        self._line = line

    def note_progress(self, _task: Claimed, progress: str) -> None:
        self._line.send("progress", progress)

    def transaction(self, *_: Any) -> NoReturn:
        raise RedriveError("ctx.transaction() is not available in a process-isolated handler")

    @property
    def loop(self) -> NoReturn:
        raise RedriveError("a process-isolated handler has no event loop of the worker")


def serve(pipe: Connection) -> None:
    """The life of a child: one job after the other until the pipe closes."""
    # Ctrl-C and a service manager's SIGTERM reach every process of the group; the worker decides what they mean.
    # Not SIG_IGN, which programs started by a handler would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_follow_parent, name="redrive-parent", daemon=True).start()
    line = _Line(pipe)
    task_logger.addHandler(_Forward(line))
    task_logger.propagate = False
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        try:
            line.send("done", _run(job, line))
        except (BrokenPipeError, OSError):
            os._exit(0)


def _follow_parent() -> None:
    """A worker that was killed cannot end its children: an orphan would go on beside the task's next attempt."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(job: Job, line: _Line) -> Any:
    try:
        function = _resolve(job.module, job.name)
        task_logger.setLevel(job.log_level)
        context = Context(job.task, _ChildRuntime(line), job.worker_id)
        line.send("started", None)
        value = function(context, **job.arguments)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        pickle.dumps(value)
        return value
    except Verdict as verdict:
        return verdict
    except BaseException as error:
        # Classified here, where the traceback is; exceptions themselves often cannot be pickled.
        given = Payload(job.task.payload, job.task.memo)
        return Failed(failure_of(error, payload=given, module=job.module))


def _resolve(module: str, name: str) -> Callable[..., Any]:
    found: Any = sys.modules.get("__mp_main__") if module == "__main__" else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # The decorated name is the task object; its function is what runs.
    return getattr(found, "function", found)  # type: ignore[no-any-return]
