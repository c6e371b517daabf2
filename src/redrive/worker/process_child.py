"""The child's side of ``processes``: runs handlers in a process of their own; and what travels between the two."""

from __future__ import annotations

import asyncio
import copyreg
import importlib
import inspect
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from redrive.errors import RedriveError
from redrive.handlers.context import Context
from redrive.handlers.functions import HandlerNotRun, insist_it_ran
from redrive.kernel.failure import failure_of
from redrive.kernel.outcome import Cancel, Done, Fail, Failed, Retry, Snooze, Verdict
from redrive.kernel.task import Claimed
from redrive.observe.current import CURRENT, TaskFields
from redrive.observe.feature_metrics import COUNTED
from redrive.settings import DEFAULT_CONNECTION
from redrive.worker.failures import failed, origin_of, unpacked
from redrive.worker.forks import Home, own_signals


@dataclass(slots=True, frozen=True)
class Job:
    """What a child needs to run one attempt: everything here is pickled."""

    module: str
    name: str
    task: Claimed
    arguments: dict[str, Any]
    worker_id: str
    deterministic: tuple[type[BaseException], ...] = ()
    log_levels: dict[str, int] = field(default_factory=dict)
    connection: str = DEFAULT_CONNECTION
    rules: bytes = b""  # what the application knows about its failures, as ``failures.packed`` makes it
    trace: str | None = None  # the span of the attempt, which is the worker's


def resolve(module: str, name: str) -> Callable[..., Any]:
    """Returns the function by its module and name, in whatever process this is."""
    found: Any
    if module == "__main__":
        found = sys.modules.get("__mp_main__") or sys.modules["__main__"]
    else:
        found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # The decorated name is the task object; its function is what runs.
    return getattr(found, "function", found)  # type: ignore[no-any-return]


def _remake(kind: type[Verdict], args: tuple[Any, ...], values: dict[str, Any]) -> Verdict:
    verdict = kind.__new__(kind, *args)
    vars(verdict).update(values)
    return verdict


# An exception is unpickled by calling its class with its text, which is not what these take.
for _kind in (Snooze, Retry, Fail, Done, Cancel):
    copyreg.pickle(_kind, lambda verdict: (_remake, (type(verdict), verdict.args, vars(verdict))))


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1


class _Line:
    """The pipe to the worker, shared by all threads of the child; processes that a handler forks do not have it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.home = Home()

    def send(self, what: str, value: Any) -> None:
        if not self.home.forked:
            with self._lock:
                self._pipe.send((what, value))


class _Forward(logging.Handler):
    """Sends log records to the worker, where logging is set up."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line
        self.addFilter(TaskFields())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {name: _plain(value) for name, value in vars(record).items()}
            fields |= {"msg": record.getMessage(), "args": None, "exc_info": None}
            if record.exc_info:
                fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
            if self._line.home.forked and logging.lastResort is not None:
                logging.lastResort.handle(record)
            self._line.send("log", fields)
        except Exception:
            self.handleError(record)


def _plain(value: Any) -> Any:
    """Returns a value that can be pickled; types of the application's own may not."""
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


class _ChildRuntime:
    """The handler's side of ``ctx`` in a child: progress goes up the pipe."""

    def __init__(self, line: _Line, connection: str) -> None:
        self._line = line
        self.connection = connection

    def note_progress(self, task: Claimed, progress: str) -> None:
        # With whose it is: a thread that outlives its handler may say it while this process runs another job.
        self._line.send("progress", (task.token, progress))

    def transaction(self, *_: Any) -> NoReturn:
        raise RedriveError("ctx.transaction() is not available in a process-isolated handler")

    @property
    def loop(self) -> NoReturn:
        raise RedriveError("a process-isolated handler has no event loop of the worker")

    @property
    def store(self) -> NoReturn:
        raise RedriveError("ctx.store is not available in a process-isolated handler")

    @property
    def settings(self) -> NoReturn:
        raise RedriveError("ctx.settings is not available in a process-isolated handler")


def serve(pipe: Connection) -> None:
    """Runs one job after the other until the pipe closes."""
    # Ctrl-C and a service manager's SIGTERM reach every process of the group; the worker decides what they mean.
    # Not SIG_IGN, which programs started by a handler would inherit.
    own_signals(STOP_SIGNALS)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked since before this process began
    # With what a handler starts, so that all of it can be killed together.
    os.setpgid(0, 0)
    _die_with_parent()
    threading.Thread(target=_follow_parent, name="redrive-parent", daemon=True).start()
    # Handlers may use multiprocessing: what it starts is killed with the group, and needs no ban.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    line = _Line(pipe)
    forward = _Forward(line)
    COUNTED.hand_up(lambda name, n, labels: line.send("counted", (name, n, labels)))
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        except Exception as error:  # something in it cannot be made here
            answer = Failed(failure_of(error))
        else:
            answer = _run(job, line, forward)
        line.home.end_if_forked()
        try:
            line.send("done", answer)
        except (BrokenPipeError, OSError):
            os._exit(0)


def _die_with_parent() -> None:
    """Has the kernel kill this process when its worker dies, where it can (Linux): native code that holds the GIL lets
    no thread of ours do it, and a stopped process runs none. The group is left to the worker's ``ProcessGroups``."""
    before = os.getppid()
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (signal.SIGKILL, 0, 0, 0)))
    except (ImportError, AttributeError, OSError, TypeError):
        return
    parent = multiprocessing.parent_process()
    if os.getppid() != before or (parent is not None and not parent.is_alive()):  # it died before it was asked for
        os._exit(1)


def _follow_parent() -> None:
    """Ends this process and what it started when its worker dies: it would go on beside the task's next attempt. For
    systems whose kernel does not."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _run(job: Job, line: _Line, forward: logging.Handler) -> Any:
    function: Callable[..., Any] = _run
    try:
        function = resolve(job.module, job.name)
        _log_through(forward, job.log_levels)
        context = Context(job.task, _ChildRuntime(line, job.connection), job.worker_id)
        CURRENT.set(context)
        if job.trace is not None:
            from redrive.observe.tracing import enter

            enter(job.trace)
        line.send("started", None)
        value = function(context, **job.arguments)
        while inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        if value is None:
            return context._done
        insist_it_ran(value)
        pickle.dumps(value)
        return value
    except HandlerNotRun as error:
        return Failed(error.failure(job.task.kind))
    except BaseException as error:
        # Judged here, where the traceback is; exceptions themselves often cannot be pickled.
        if isinstance(error, Verdict) and not isinstance(error, Fail | Retry):
            return error
        rules = unpacked(job.rules)
        return failed(error, origin_of(function, job.task, deterministic=job.deterministic, rules=rules))


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _log_through(forward: logging.Handler, levels: dict[str, int]) -> None:
    """Sends all logging to the worker; handlers that the application's modules set up at import would say it twice."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.root.handlers[:] = [forward]
