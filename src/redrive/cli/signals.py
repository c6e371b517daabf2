"""SIGTERM and SIGINT (D1): the first asks to stop, the second exits at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from redrive.worker.supervisor import SUPERVISED

logger = logging.getLogger("redrive.cli")


@contextlib.contextmanager
def stopping(stop: Callable[[], None], force: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within the block, the first signal calls ``stop`` on the loop; the second calls ``force`` and exits.

    Plain handlers, not the loop's: they also run when a handler blocks the loop, and then the second signal must
    still work.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal asked
        name = signal.Signals(number).name
        if not asked:
            asked = True
            loop.call_soon_threadsafe(_ask, name, stop)
            return
        try:
            force()
            _log(logging.WARNING, "worker.killed", "%s again: exiting at once; leases will expire", name)
        finally:
            os._exit(128 + number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with _parent(loop, stop):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask(name: str, stop: Callable[[], None]) -> None:
    _log(logging.INFO, "worker.stopping", "%s: finishing what runs; send it again to exit at once", name)
    stop()


@contextlib.contextmanager
def _parent(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """A child of a supervisor also stops when that dies: its standard input ends."""
    if not os.environ.pop(SUPERVISED, None):
        yield
        return
    pipe = sys.stdin.fileno()

    def ended() -> None:
        if not os.read(pipe, 1024):
            loop.remove_reader(pipe)
            _log(logging.WARNING, "worker.stopping", "the supervisor is gone: finishing what runs")
            stop()

    loop.add_reader(pipe, ended)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


def _log(level: int, event: str, message: str, *args: object) -> None:
    logger.log(level, message, *args, extra={"event": event})
