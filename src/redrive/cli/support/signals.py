"""Handles SIGTERM and SIGINT: the first asks to stop, the second exits at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

from redrive.worker.forks import own_signals

logger = logging.getLogger("redrive.cli")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One stop may arrive twice: `timeout`, shells and wrappers signal the process and then its group.
ONE_STOP_S = 0.2


@contextlib.contextmanager
def stopping(
    stop: Callable[[str], None],
    force: Callable[[], None] = lambda: None,
    drain: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Handles signals within the block: the first calls ``stop`` on the loop, with its name; the second calls ``force``
    and exits. ``drain``: this is the child of a supervisor, which may ask for that.

    A thread listens. Python runs its own signal handlers only in the main thread, between two instructions: while a
    handler blocks that (one long call, and the kernel gave the signal to another thread), a second Ctrl-C would
    wait for the call to end. The interpreter writes each signal to the wakeup descriptor in whatever thread it
    arrives, at once.
    """
    own_signals(STOP_SIGNALS)
    loop = asyncio.get_running_loop()
    listening, written = socket.socketpair()
    written.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
    descriptor = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(
        target=_listen, args=(listening, loop, stop, force), name="redrive-signals", daemon=True
    )
    listener.start()
    try:
        with _parent(loop, stop, drain):
            yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        written.close()
        listener.join()
        listening.close()


def _listen(
    heard: socket.socket, loop: asyncio.AbstractEventLoop, stop: Callable[[str], None], force: Callable[[], None]
) -> None:
    """Waits for signals; ends when the other side is closed."""
    first: tuple[int, float] | None = None
    while numbers := heard.recv(64):
        for number in (number for number in numbers if number in STOP_SIGNALS):
            if first is None:
                first = number, time.monotonic()
                loop.call_soon_threadsafe(stop, signal.Signals(number).name)
            elif number != first[0] or time.monotonic() - first[1] > ONE_STOP_S:
                _exit(number, force)


def _exit(number: int, force: Callable[[], None]) -> None:
    try:
        force()
        name = signal.Signals(number).name
        logger.warning("%s again: exiting at once; leases will expire", name, extra={"event": "worker.killed"})
    finally:
        os._exit(128 + number)


@contextlib.contextmanager
def _parent(
    loop: asyncio.AbstractEventLoop, stop: Callable[[str], None], drain: Callable[[], None] | None
) -> Iterator[None]:
    """Listens to the supervisor of this process, if it has one: it may ask to drain, and its end is one to stop."""
    if drain is None:
        yield
        return
    pipe = sys.stdin.fileno()

    def heard() -> None:
        if os.read(pipe, 1024):  # there is but one thing it says
            drain()
        else:
            loop.remove_reader(pipe)
            stop("the supervisor is gone")

    loop.add_reader(pipe, heard)
    try:
        yield
    finally:
        loop.remove_reader(pipe)
