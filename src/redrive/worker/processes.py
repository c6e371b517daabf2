"""Runs handlers in processes that can be killed: CPU-bound work, native code that hangs or crashes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker, spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from redrive.errors import ConfigError
from redrive.handlers.registry import Handler
from redrive.kernel.task import Claimed
from redrive.observe.feature_metrics import COUNTED
from redrive.settings import DEFAULT_CONNECTION
from redrive.worker import process_group_killer
from redrive.worker.failures import packed
from redrive.worker.pools import CannotStart, start_thread
from redrive.worker.process_child import STOP_SIGNALS, Job, resolve, serve


class ProcessGroups:
    """Tells the killer which process groups belong to this worker. It is started with the first of them; where it
    cannot be started, a killed worker leaves what its handlers have started."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._killer: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if self._killer is None:
                self._start()
            else:
                self._tell(f"+{group}\n")

    def discard(self, group: int) -> None:
        with self._lock:
            if group in self._groups:
                self._groups.remove(group)
                self._tell(f"-{group}\n")

    def close(self) -> None:
        """Ends the killer: nothing is left to be killed."""
        with self._lock:
            killer, self._killer = self._killer, None
        if killer is not None:
            _end(killer)

    def _start(self) -> None:
        executable = os.fsdecode(spawn.get_executable() or "")
        try:
            self._killer = subprocess.Popen(
                [executable, "-I", "-S", process_group_killer.__file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError):
            return
        self._tell("".join(f"+{group}\n" for group in self._groups))

    def _tell(self, lines: str) -> None:
        """Tells the killer; one that was killed itself is replaced with the next process group."""
        if self._killer is None or self._killer.stdin is None:
            return
        try:
            self._killer.stdin.write(lines.encode())
            self._killer.stdin.flush()
        except OSError:
            _end(self._killer)
            self._killer = None


def _end(killer: subprocess.Popen[bytes]) -> None:
    killer.kill()
    with contextlib.suppress(OSError):
        killer.communicate()


LOOK_AFTER_CHILD_EVERY_S = 1.0


class ProcessDied(RuntimeError):
    """Raised when the child ended without an answer: killed by the kernel, crashed in native code, or called
    ``os._exit``."""


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    pipe: Connection
    # Tells that the process has ended; None where the system has no such thing. The pipe's end alone would not do:
    # what a handler has forked holds it, too.
    ended: int | None = None

    def recv(self) -> Any:
        """Returns its next message; raises EOFError when there will be none."""
        while not self.pipe.poll(0):
            if self.ended is None:
                wait([self.pipe], LOOK_AFTER_CHILD_EVERY_S)
                gone = not self.process.is_alive()
            else:
                gone = self.ended in wait([self.pipe, self.ended])
            if gone and not self.pipe.poll(0):
                raise EOFError
        return self.pipe.recv()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.close()
        if self.ended is not None:
            os.close(self.ended)
            self.ended = None


class ProcessPool:
    """Starts child processes when needed, reuses them, and replaces those that were killed."""

    def __init__(self, on_progress: Callable[[Claimed, str], None]) -> None:
        # spawn: a forked copy of a process with threads and sockets is not a safe place to run code.
        self._start = multiprocessing.get_context("spawn")
        self._idle: list[_Child] = []
        self._on_progress = on_progress
        self._groups = ProcessGroups()
        self.started = 0
        # One thread starts all of them, and lives as long as they do: the kernel ends a child with the thread that
        # has started it.
        self._starter = ThreadPoolExecutor(1, "redrive-starter")

    async def run(
        self,
        handler: Handler,
        task: Claimed,
        arguments: dict[str, Any],
        worker_id: str,
        on_start: Callable[[], None] = lambda: None,
        connection: str = DEFAULT_CONNECTION,
        trace: str | None = None,
    ) -> Any:
        """Runs one attempt; cancelling this coroutine kills the child. ``on_start`` is called when the process has
        started and has imported the handler. ``trace``: the context that the handler's spans belong to."""
        module, name = _address(handler)
        child = self._idle.pop() if self._idle else await self._started()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        rules = packed(handler.rules)
        levels, final = _log_levels(), handler.deterministic
        job = Job(module, name, task, arguments, worker_id, final, levels, connection, rules, trace)
        # In a thread, the sending too: a large payload fills the pipe until the child has started and reads.
        talking = threading.Thread(
            target=self._talk,
            args=(child, job, loop, answer, on_start),
            name=f"redrive-process-{child.process.pid}",
            daemon=True,
        )
        try:
            start_thread(talking)
            outcome = await answer
        except asyncio.CancelledError:
            self._kill(child)
            raise
        except ProcessDied:
            self._kill(child)
            raise ProcessDied(_how_it_ended(child)) from None
        except Exception:
            # The job or its answer does not travel between processes; what the child does now is unknown.
            self._kill(child)
            raise
        self._idle.append(child)
        return outcome

    def close(self) -> None:
        while self._idle:
            child = self._idle.pop()
            with contextlib.suppress(OSError):
                child.pipe.close()  # end of file: the child leaves by itself
            child.process.join(1)
            self._kill(child)
        self._starter.shutdown(wait=False)
        self._groups.close()

    async def _started(self) -> _Child:
        """Starts a child; one that nobody waits for any more when it is there is killed."""
        try:
            starting = self._starter.submit(self._spawn)
        except (RuntimeError, MemoryError) as error:
            raise CannotStart(str(error)) from error
        try:
            return await asyncio.wrap_future(starting)
        except (OSError, MemoryError, RuntimeError) as error:
            raise CannotStart(str(error)) from error
        except asyncio.CancelledError:
            starting.add_done_callback(self._unwanted)
            raise

    def _unwanted(self, started: Future[_Child]) -> None:
        if not started.cancelled() and started.exception() is None:
            self._kill(started.result())

    def _kill(self, child: _Child) -> None:
        _kill(child)
        if child.process.pid is not None:
            self._groups.discard(child.process.pid)

    def _spawn(self) -> _Child:
        ours, theirs = self._start.Pipe()
        process = self._start.Process(target=serve, args=(theirs,), name="redrive-handler", daemon=True)
        # A signal to all processes, as Ctrl-C and service managers send it, must not end one that has not got as far
        # as to say what it does with it: it waits until then (see serve). The tracker takes its signals back itself.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.started += 1
        if process.pid is not None:
            self._groups.add(process.pid)
        return _Child(process, ours, _opened(process))

    def _talk(
        self,
        child: _Child,
        job: Job,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
        on_start: Callable[[], None],
    ) -> None:
        def post(call: Callable[..., Any], *args: Any) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call, *args)

        def finish(value: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_exception(error) if error else answer.set_result(value)

        try:
            child.pipe.send(job)
            while (message := child.recv())[0] != "done":
                match message:
                    case "progress", (token, progress) if token == job.task.token:
                        post(self._on_progress, job.task, progress)
                    case "counted", counted:
                        COUNTED.add(*counted)
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
    """Logs a child's record here, where logging is set up."""
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _log_levels() -> dict[str, int]:
    """Returns the levels that are set here, by logger (the root's name is empty): a child logs what would be logged
    here, and no more."""
    found = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"": logging.root.level} | found


def _kill(child: _Child) -> None:
    """Kills a child and what it has started, which would go on beside the task's next attempt."""
    # The process group first: as long as the child is not waited for, its number is nobody else's.
    if child.process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
    if child.process.is_alive():
        child.process.kill()  # it has not got as far as to make a process group of its own
    child.process.join(5)
    child.close()


def _opened(process: BaseProcess) -> int | None:
    """Returns a descriptor that becomes readable when the process ends; None where there is none to be had."""
    try:
        return os.pidfd_open(process.pid or 0)
    except (AttributeError, OSError):
        return None


def _how_it_ended(child: _Child) -> str:
    code = child.process.exitcode
    if code is not None and code < 0:
        known = -code in set(signal.Signals)
        return f"the handler's process was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"the handler's process ended with exit code {code} and no answer"


def _address(handler: Handler) -> tuple[str, str]:
    """Returns where a child finds the function. Only what can be imported can run in another process."""
    module, name = handler.function.__module__, handler.function.__qualname__
    try:
        found = resolve(module, name)
    except (AttributeError, ImportError):
        found = None
    # Bound methods are made anew each time they are looked at.
    if found != handler.function:
        raise ConfigError(
            f"the handler of {handler.kind} cannot run in a process of its own: {module}.{name} is something else",
            hint="a decorator may have hidden it under another name: decorate it where it is defined, in one go",
        )
    return module, name
