"""Looks at all connections of an application: the ones that can be reached answer, the others are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from redrive.errors import StoreError, StoreUnavailable
from redrive.kernel.task import State
from redrive.ops.operator.operator import Operator

T = TypeVar("T")
Found = tuple[dict[str, T], dict[str, StoreError]]
# One that hangs keeps nobody from the others.
PATIENCE_S = 10.0


async def on_each(
    names: Iterable[str], operator: Callable[[str], Awaitable[Operator]], look: Callable[[Operator], Awaitable[T]]
) -> Found[T]:
    """Returns what ``look`` finds on each connection, and why it could not look at the others."""

    async def one(name: str) -> T | StoreError:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await look(await operator(name))
        except StoreError as error:
            return error
        except TimeoutError:
            return StoreUnavailable(f"no answer within {PATIENCE_S:g} s")

    listed = list(names)
    answers = dict(zip(listed, await asyncio.gather(*map(one, listed)), strict=True))
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, StoreError)}
    return found, {name: answer for name, answer in answers.items() if isinstance(answer, StoreError)}


@dataclass(slots=True, frozen=True)
class ConnectionTotals:
    """How a connection is: its tasks by state, or why it could not be asked."""

    name: str
    totals: dict[str, int]
    dead_letters: int = 0
    error: StoreError | None = None


async def totals_of(
    names: Iterable[str], operator: Callable[[str], Awaitable[Operator]]
) -> tuple[list[ConnectionTotals], dict[str, int]]:
    """Returns how each connection is, and the totals of those that answered."""

    async def look(own: Operator) -> ConnectionTotals:
        stats = await own.health.stats()
        return ConnectionTotals(own.connection, stats.totals(), sum(stats.dead_letters().values()))

    listed = list(names)
    found, away = await on_each(listed, operator, look)
    together = {state.value: sum(one.totals[state.value] for one in found.values()) for state in State}
    return [found.get(name) or ConnectionTotals(name, {}, error=away[name]) for name in listed], together
