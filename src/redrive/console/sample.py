"""What a live region is made of: see ``topics``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from redrive.ops.operator import Operator

Sample = Callable[[Operator], Awaitable[Mapping[str, str]]]
Sampler = Callable[[str], Sample]  # gets the argument of the topic
Number = Callable[[Operator], Awaitable[int]]


def seldom(sample: Sample, every: float) -> Sample:
    """Returns a sample of what changes slowly: in between, for so many seconds, it is the last one again."""
    last: Mapping[str, str] = {}
    due = 0.0

    async def sampled(operator: Operator) -> Mapping[str, str]:
        nonlocal last, due
        if time.monotonic() >= due:
            last = await sample(operator)
            due = time.monotonic() + every
        return last

    return sampled
