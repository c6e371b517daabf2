"""Runs an experiment from a command: whoever stops it stops all of its processes, too."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Returns what a coroutine returns. SIGTERM interrupts it as Ctrl-C does: what it started is ended."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
