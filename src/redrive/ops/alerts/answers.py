"""Asks the queries of an application's own rules and notes: they read, one after the other, each within a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal

from redrive.errors import RedriveError, StoreUnavailable
from redrive.kernel.alerts.facts import Answer
from redrive.kernel.ports.store import Store

ASKED_EVERY = timedelta(seconds=60)
LIMIT_S = 5.0
LONGEST_FAULT = 200


async def ask(store: Store, query: str, seconds: float = LIMIT_S) -> Answer:
    """Returns what a query answers with: a number, nothing, or why there is none."""
    if "\0" in query or query.encode(errors="replace").decode() != query:
        return Answer(fault="its query has a character that no text may have")
    try:
        async with asyncio.timeout(2 * seconds):
            found = await store.answer(query, seconds)
    except StoreUnavailable:
        raise
    except RedriveError as error:
        return Answer(fault=" ".join(error.message.split())[:LONGEST_FAULT])
    except TimeoutError:
        return Answer(fault=f"it took longer than {seconds:g} s")
    except Exception as error:  # anything can stand in a query, and one of them must not end the others
        return Answer(fault=f"{type(error).__name__}: {error}"[:LONGEST_FAULT])
    return _number(found)


def _number(found: object) -> Answer:
    if found is None:
        return Answer()
    if not isinstance(found, int | float | Decimal):
        return Answer(fault=f"its query answers with a {type(found).__name__}, and not with a number")
    with suppress(OverflowError):
        if math.isfinite(value := float(found)):
            return Answer(value)
    return Answer(fault="its query answers with a number that is too large, or with none")


async def ask_all(
    store: Store, queries: Mapping[str, str], known: Mapping[str, Answer], now: datetime
) -> dict[str, Answer]:
    """Returns the answers of all, those asked again that are a minute old."""
    found: dict[str, Answer] = {}
    for name, query in queries.items():
        last = known.get(name)
        fresh = last is not None and last.at is not None and now - last.at < ASKED_EVERY
        found[name] = last if last is not None and fresh else (await ask(store, query)).asked(now)
    return found
