"""What a live region is made of: see ``topics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from redrive.ops.operator import Operator

Sample = Callable[[Operator], Awaitable[Mapping[str, str]]]
Sampler = Callable[[str], Sample]  # gets the argument of the topic
Number = Callable[[Operator], Awaitable[int]]
