"""Keeps a handler's ``os.fork()`` from becoming a second worker.

A forked child is a copy of the whole worker: of its event loop, its leases and its connections, whose sockets it
shares with the original. If the handler's code came back from there into ours, the copy would talk on those sockets
and settle the same tasks. So the child ends where the handler's code gives control back to the worker, or to the event
loop or the pool of threads that ran a part of it. Until then it may do what it likes, such as ``exec`` another program.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import struct
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import thread as pools
from contextlib import suppress
from typing import Any, NoReturn

from redrive.observe.current import CURRENT

_EXIT_CODE = 70
# Whoever forks may ask for the child's exit code itself, for so long; nobody else does, and it would stay a zombie.
REAP_AFTER_S = 30.0
_pid = os.getpid()
# Signals whose handlers mean this process alone.
_own_signals: set[int] = set()


def own_signals(numbers: Iterable[int]) -> None:
    """Marks signals as handled by this process only: a process that a handler forks gets the system's defaults. It
    could not be ended otherwise (``Process.terminate``), and what ends it would be taken for a signal to the worker."""
    _own_signals.update(numbers)


_forking = threading.local()


class _Returned:
    """Children that came back to the worker and ended here, which tell their parent so through a pipe: of all its
    children, these are the ones that nobody knows of."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._made_in = 0
        self._ended: dict[int, float] = {}

    def open(self) -> None:
        if self._made_in != os.getpid():  # a pipe of the process that this one was forked from is none of its own
            with suppress(OSError):  # no file is left: its children stay zombies
                self._pipe, self._made_in, self._ended = os.pipe(), os.getpid(), {}
                for end in self._pipe:
                    os.set_blocking(end, False)

    def tell(self) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe[1], struct.pack("i", os.getpid()))

    def reap(self) -> None:
        """Takes the exit codes of those that ended a while ago; called with each heartbeat."""
        if self._pipe is None or self._made_in != os.getpid():
            return
        now = time.monotonic()
        with suppress(OSError):  # nothing is there
            data = os.read(self._pipe[0], 4096)
            self._ended |= {pid: now for (pid,) in struct.iter_unpack("i", data)}
        for pid in [pid for pid, at in self._ended.items() if now - at >= REAP_AFTER_S]:
            del self._ended[pid]
            with suppress(OSError):  # whoever forked has asked for it
                os.waitpid(pid, os.WNOHANG)


_returned = _Returned()
reap = _returned.reap


def _before_fork() -> None:
    """Blocks signals until the child has dropped our handlers: it may be ended as soon as it is there."""
    # Python forgets the running loop in the child.
    _forking.loop = None if CURRENT.get() is None else asyncio._get_running_loop()
    if CURRENT.get() is not None:
        _returned.open()
    if _own_signals:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _own_signals)


def _in_parent() -> None:
    if _own_signals:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_child() -> None:
    global _pid
    _pid = os.getpid()
    if _own_signals:
        signal.set_wakeup_fd(-1)
        for number in _own_signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
    if CURRENT.get() is not None:
        _end_on_return()


def _end_on_return() -> None:
    """Makes the loop or the thread pool whose thread this is end the process next. Both are private parts of Python;
    without them a child that comes back there stays, as it did."""
    ready = getattr(_forking.loop, "_ready", None)
    if isinstance(ready, deque):
        ready.clear()
        ready.append(asyncio.Handle(_end, (), _forking.loop))
    waiting = getattr(pools, "_threads_queues", {}).get(threading.current_thread())
    if isinstance(waiting, queue.SimpleQueue):
        with suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        waiting.put(_Ending())


class _Ending:
    """A work item for a pool's thread that ends the process."""

    def run(self, *_: object) -> NoReturn:
        _end()


def _end() -> NoReturn:
    _returned.tell()
    os.write(2, b"redrive: a handler forked, and its child came back to the worker; the child ends here\n")
    os._exit(_EXIT_CODE)


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


class Home:
    """Remembers the process that something was made in."""

    __slots__ = ("_made_in",)

    def __init__(self) -> None:
        self._made_in = _pid

    @property
    def forked(self) -> bool:
        """Returns whether this process is a copy of the one it was made in."""
        return _pid != self._made_in

    def end_if_forked(self) -> None:
        """Ends this process, at once and without cleaning up, if it is a copy made by a handler."""
        if _pid != self._made_in:
            _end()


NOT_BEGUN = object()


@types.coroutine
def confined(
    send: Callable[[Any], Any], throw: Callable[[BaseException], Any], home: Home, waits_for: Any = NOT_BEGUN
) -> Generator[Any, Any, Any]:
    """Awaits a coroutine by its ``send`` and ``throw`` and returns what it returned; whatever it does, only the
    original process goes on behind it. ``waits_for``: what its first step came to, if somebody has made that."""
    step: Callable[[Any], Any] = send
    given: Any = None
    while True:
        if waits_for is not NOT_BEGUN:
            try:
                given = yield waits_for
                step = send
            except BaseException as error:
                given = error
                step = throw
        try:
            waits_for = step(given)
        except StopIteration as end:
            return end.value
        finally:
            home.end_if_forked()
