"""The numbers beside the pages in the menu."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from redrive.console.text import short_number
from redrive.kernel.operation import Status
from redrive.ops.approvals import PENDING
from redrive.ops.operator import Operator

MOST = 50


def sampler(_: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    return sample


async def sample(operator: Operator) -> Mapping[str, str]:
    """Returns how many tasks are failed, operations run, and approvals wait; nothing where it is none."""
    failed = await operator.failures.count()
    running = await operator.operations.list(states=(Status.RUNNING, Status.PAUSED), limit=MOST)
    waiting = await operator.approvals.list(states=(PENDING,), limit=MOST)
    numbers = {"failed": failed, "operations": len(running), "approvals": len(waiting)}
    return {f"badge:{name}": short_number(n) if n else "" for name, n in numbers.items()}
