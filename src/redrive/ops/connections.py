"""Looks at all connections of an application: the ones that can be reached answer, the others are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redrive.errors import (
    BatchUnknown,
    CauseUnknown,
    InvalidInput,
    NotFound,
    RedriveError,
    StoreError,
    StoreUnavailable,
    UnknownKind,
    UnknownQueue,
)
from redrive.kernel.task import State
from redrive.ops.operator.operator import Operator

T = TypeVar("T")
Found = tuple[dict[str, T], dict[str, StoreError]]
Opens = Callable[[str], Awaitable[Operator]]
Look = Callable[[Operator], Awaitable[T]]
# One that hangs keeps nobody from the others: it has so long for a sign of life, and so long for its answer.
SIGN_OF_LIFE_S = 3.0
PATIENCE_S = 10.0
# What one connection does not know, another may.
UNKNOWN = (UnknownKind, UnknownQueue, CauseUnknown, BatchUnknown)


async def on_each(
    names: Iterable[str], operator: Opens, look: Look[T], *, patience: float | None = PATIENCE_S
) -> Found[T]:
    """Returns what ``look`` finds on each connection, all asked at the same time, and why it could not look at the
    others. A name that it refuses as unknown on one is refused only where no other knows it."""

    async def one(name: str) -> T | RedriveError:
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_S):
                own = await operator(name)
                await own.health.now()
        except TimeoutError:
            return StoreUnavailable(f"no answer within {SIGN_OF_LIFE_S:g} s")
        except StoreError as error:
            return error
        try:
            async with asyncio.timeout(patience):
                return await look(own)
        except TimeoutError:
            return StoreUnavailable(f"no answer within {patience:g} s")
        except (StoreError, *UNKNOWN) as error:
            return error

    listed = list(names)
    answers = dict(zip(listed, await asyncio.gather(*map(one, listed)), strict=True))
    away = {name: answer for name, answer in answers.items() if isinstance(answer, StoreError)}
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, RedriveError)}
    refused = [answer for answer in answers.values() if isinstance(answer, UNKNOWN)]
    if refused and not found:
        raise _missing(away, refused[0].message) if away else refused[0]
    return found, away


async def connection_having(names: Iterable[str], operator: Opens, has: Look[Sequence[str]]) -> str | None:
    """Returns the connection that has the things a command names; None where none has one of them. ``has`` returns
    those that an operator's connection has; several connections with some of them are refused."""
    known, away = await on_each(names, operator, has)
    having = {name: found for name, found in known.items() if found}
    if len(having) > 1:
        listed = "; ".join(f"{', '.join(found)} on {name}" for name, found in having.items())
        raise InvalidInput(
            "what is named is on several connections",
            hint=f"name what each has by itself, or say which with --connection NAME: {listed}",
        )
    if not having and away:
        raise _missing(away, "none of the other connections has it")
    return next(iter(having), None)


def having(name: str, show: Look[object]) -> Look[Sequence[str]]:
    """Returns what finds out whether a connection has the thing of this name, which ``show`` looks up."""

    async def has(own: Operator) -> Sequence[str]:
        try:
            await show(own)
        except NotFound:
            return ()
        return (name,)

    return has


def _missing(away: Mapping[str, StoreError], told: str) -> StoreError:
    """Returns the error of one that could not be asked: what the others lack may be there."""
    name, error = next(iter(away.items()))
    error.message = f"{told}, and {name} cannot be asked: {error.message}"
    return error


def latest(pages: Mapping[str, Iterable[T]], at: Callable[[T], Any], limit: int | None = None) -> list[tuple[str, T]]:
    """Returns the rows of all connections, the latest first, each with the name of its connection."""
    rows = [(name, row) for name, page in pages.items() for row in page]
    return sorted(rows, key=lambda row: at(row[1]), reverse=True)[:limit]


async def connections_with(
    names: Iterable[str], operator: Opens, target: str, name: str, routed: Iterable[str]
) -> tuple[list[str], dict[str, StoreError]]:
    """Returns the connections on which a ``queue``, ``kind`` or ``group`` has tasks or is paused, or to which tasks of
    it are ``routed``; and those that could not be asked."""
    listed = list(names)
    found, away = await on_each(listed, operator, lambda own: own.control.has_any(target, name))
    there = {*routed, *(one for one, has in found.items() if has)}
    return [one for one in listed if one in there], away


async def same_stores(names: Iterable[str], operator: Opens) -> list[tuple[str, str]]:
    """Returns connections that are one store under two names: whatever is there would be counted twice."""
    found, _ = await on_each(names, operator, lambda own: own.health.identity())
    return same(found)


def same(identities: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns names of connections with the identity of another, with the first that has it."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(identity, name), name) for name, identity in identities.items()]
    return [(one, other) for one, other in pairs if one != other]


@dataclass(slots=True, frozen=True)
class ConnectionTotals:
    """How a connection is: its tasks by state, or why it could not be asked."""

    name: str
    totals: dict[str, int]
    dead_letters: int = 0
    error: StoreError | None = None


async def totals_of(names: Iterable[str], operator: Opens) -> tuple[list[ConnectionTotals], dict[str, int]]:
    """Returns how each connection is, and the totals of those that answered."""

    async def look(own: Operator) -> ConnectionTotals:
        stats = await own.health.stats()
        return ConnectionTotals(own.connection, stats.totals(), sum(stats.dead_letters().values()))

    listed = list(names)
    found, away = await on_each(listed, operator, look)
    together = {state.value: sum(one.totals[state.value] for one in found.values()) for state in State}
    return [found.get(name) or ConnectionTotals(name, {}, error=away[name]) for name in listed], together
