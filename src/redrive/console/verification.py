"""Verifies the audit log once for everybody who asks at the same time.

It walks the whole log, which takes seconds where that is long. Whoever asks while it is under way waits for the same
answer, which is good for a minute: however many ask, one walk is under way at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from redrive.ops.audit_verify import Verdict

GOOD_FOR_S = 60.0


class Verification:
    """The last verdict of a process, and the walk that makes the next one."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Verdict] | None = None
        self._ended_at = 0.0

    async def verdict(self, verify: Callable[[], Awaitable[Verdict]]) -> tuple[Verdict, float]:
        """Returns the verdict, and how many seconds old it is."""
        task = self._task
        if task is None or (task.done() and (_failed(task) or self.age > GOOD_FOR_S)):
            task = self._task = asyncio.create_task(self._walk(verify))
        # Not ended by a reader who leaves: others may wait for it, and the next one would begin again.
        return await asyncio.shield(task), self.age

    @property
    def age(self) -> float:
        return time.monotonic() - self._ended_at

    async def _walk(self, verify: Callable[[], Awaitable[Verdict]]) -> Verdict:
        try:
            return await verify()
        finally:
            self._ended_at = time.monotonic()

    def close(self) -> None:
        """Ends a walk that is under way: nothing keeps a process that was told to stop."""
        if self._task is not None:
            self._task.cancel()


def _failed(task: asyncio.Task[Verdict]) -> bool:
    return task.cancelled() or task.exception() is not None
