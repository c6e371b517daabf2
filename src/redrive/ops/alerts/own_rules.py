"""The rules besides the table's: those of the application and those that its features bring, and what they answer.
Their queries read, one after the other, each within a time."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.settings import Settings

logger = logging.getLogger("redrive.alerts")
ASKED_EVERY = timedelta(seconds=60)
LIMIT_S = 5.0
LONGEST_FAULT = 200


async def ask(store: Store, query: str, seconds: float = LIMIT_S) -> Answer:
    """Returns what a query answers with: a number, nothing, or why there is none."""
    if "\0" in query or query.encode(errors="replace").decode() != query:
        return Answer(fault="its query has a character that no text may have")
    try:
        async with asyncio.timeout(2 * seconds):
            found = await store.sql.answer(query, seconds)
    except StoreUnavailable:
        raise
    except RedriveError as error:
        return Answer(fault=" ".join(error.message.split())[:LONGEST_FAULT])
    except TimeoutError:
        return Answer(fault=f"it took longer than {seconds:g} s")
    except Exception as error:  # anything can stand in a query, and one of them must not end the others
        return Answer(fault=f"{type(error).__name__}: {error}"[:LONGEST_FAULT])
    return _number(found)


async def ask_rule(store: Store, rule: OwnRule) -> Answer:
    """Returns what the query of a rule answers with, or what its feature finds."""
    if rule.look is None:
        return await ask(store, rule.query)
    try:
        async with asyncio.timeout(LIMIT_S):
            return _number(await rule.look(store), "its feature")
    except (StoreUnavailable, StoreUnusable):
        raise
    except TimeoutError:
        return Answer(fault=f"it took longer than {LIMIT_S:g} s")
    except Exception as error:  # a feature's mistake must not end the other rules; its words may be somebody's data
        logger.exception("the alert %s could not be looked at", rule.name, extra={"event": "alerts.look_failed"})
        told = error.message if isinstance(error, RedriveError) else type(error).__name__
        return Answer(fault=" ".join(told.split())[:LONGEST_FAULT])


def _number(found: object, whose: str = "its query") -> Answer:
    if found is None:
        return Answer()
    if not isinstance(found, int | float | Decimal):
        return Answer(fault=f"{whose} answers with a {type(found).__name__}, and not with a number")
    with suppress(OverflowError):
        if math.isfinite(value := float(found)):
            return Answer(value)
    return Answer(fault=f"{whose} answers with a number that is too large, or with none")


async def ask_all(
    store: Store,
    rules: Mapping[str, OwnRule],
    known: Mapping[str, Answer],
    now: datetime,
    every: timedelta = ASKED_EVERY,
) -> dict[str, Answer]:
    """Returns the answers of all, those asked again that are a minute old, or as old as ``every`` says."""
    found: dict[str, Answer] = {}
    for name, rule in rules.items():
        last = known.get(name)
        fresh = last is not None and last.at is not None and now - last.at < every
        found[name] = last if last is not None and fresh else (await ask_rule(store, rule)).with_time(now)
    return found


def more_rules(settings: Settings, features: Iterable[Feature], connection: str | None = None) -> dict[str, OwnRule]:
    """Returns those that hold on a connection, the default one for None. A feature may have tasks on each."""
    return {**settings.own_alerts(connection), **_feature_rules(settings, features)}


def all_more_rules(settings: Settings, features: Iterable[Feature]) -> dict[str, OwnRule]:
    """Returns those of all connections."""
    return {**settings.alerts.own, **_feature_rules(settings, features)}


def _feature_rules(settings: Settings, features: Iterable[Feature]) -> dict[str, OwnRule]:
    rules = [rule.bound(feature.examine, settings) for feature in features for rule in feature.alerts]
    return {rule.name: rule for rule in rules if settings.alerts.limits.holds(rule.name, "")}
