"""Examines the health of a PostgreSQL database, as far as the role that asks may see it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from redrive.errors import StoreError
from redrive.kernel.diagnosis import Diagnosis, Finding, Level
from redrive.kernel.figures import LATE_AFTER_S, MOST_COUNTED, Figures
from redrive.stores.postgres.pool import Pool
from redrive.stores.refusals import missing_index, took_too_long
from redrive.stores.rows import MOST_VALUES, read_figures
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "diagnose.sql")
LONG_TRANSACTION = timedelta(minutes=5)
LARGE_CLOCK_SKEW = timedelta(seconds=5)
MANY_DEAD_ROWS = 100_000
_AWAY = ("08", "53", "57")  # classes of errors that are not the query's
PROBE_CHANNEL = "redrive_doctor"
PROBE_HEARD_WITHIN_S = 2.0


async def diagnose_briefly(pool: Pool) -> Diagnosis:
    async def look(connection: Any) -> Diagnosis:
        dead = await connection.fetch(SQL["dead_rows"])
        return await _begun(connection, dead)

    found: Diagnosis = await pool.run(look)
    return found


async def _begun(connection: Any, dead: list[Any]) -> Diagnosis:
    """Returns a diagnosis of which store it is and how large."""
    found = Diagnosis(await connection.fetchval(SQL["now"]), str(await connection.fetchval(SQL["identity"])))
    found.vitals = {"size": int(await connection.fetchval(SQL["size"]))}
    found.vitals |= {f"dead:{row['relname']}": row["dead"] for row in dead}
    return found


async def diagnose(pool: Pool, indexes: frozenset[str]) -> Diagnosis:
    async def look(connection: Any) -> Diagnosis:
        dead = await connection.fetch(SQL["dead_rows"])
        asked = datetime.now(UTC)
        found = await _begun(connection, dead)
        now = found.now
        found.oldest = {row["queue"]: row["since"] for row in await connection.fetch(SQL["oldest"])}
        found.note_expired(tuple(row) for row in await connection.fetch(SQL["expired"]))
        found.unknown = {row["feature"]: row["n"] for row in await connection.fetch(SQL["unknown"])}
        found.faults = {str(row["id"]): row["fault"] for row in await connection.fetch(SQL["faults"])}
        found.left_open = await connection.fetchval(SQL["waiting"])
        found.findings = [
            *_skew(now, asked, datetime.now(UTC)),
            *_transactions(await connection.fetch(SQL["transactions"]), now),
            *_dead_rows(dead),
            *_indexes({row["name"]: row["valid"] for row in await connection.fetch(SQL["indexes"])}, indexes),
            *_connections((await connection.fetch(SQL["connections"]))[0]),
            *_pooling(pool),
        ]
        return found

    answer: Diagnosis = await pool.run(look)
    answer.findings += await _hints(pool)
    return answer


async def answer(pool: Pool, query: str, seconds: float) -> Any:
    """What it sets for its session is gone with the transaction, which is never committed. The protocol takes one
    statement at a time, so that none can end it."""
    async with pool.connection() as connection:
        transaction = connection.transaction(readonly=True)
        await transaction.start()
        try:
            await connection.fetchval(SQL["limit"], str(round(seconds * 1000)))
            return await connection.fetchval(query)
        except asyncpg.QueryCanceledError as error:
            raise took_too_long(seconds) from error
        except asyncpg.PostgresError as error:
            if str(error.sqlstate).startswith(_AWAY):
                raise
            raise StoreError(_without_data(error)) from error
        except (asyncpg.InterfaceError, ValueError) as error:  # it wants arguments, or has what no text may have
            if connection.is_closed():
                raise
            raise StoreError(str(error)) from error
        finally:
            await transaction.rollback()


def _without_data(error: asyncpg.PostgresError) -> str:
    """Returns the server's words, without the values that it quotes where one of them did not fit."""
    about_names = str(error.sqlstate).startswith("42")
    return str(error) if about_names else re.sub(r'"[^"]*"', '"…"', str(error))


async def _hints(pool: Pool) -> list[Finding]:
    """Checks that a notification arrives: something in between may swallow it without a word."""
    if pool.pooled:
        return []
    heard = asyncio.Event()

    async def try_it(connection: Any) -> None:
        def hear(*_: Any) -> None:
            heard.set()

        await connection.add_listener(PROBE_CHANNEL, hear)
        try:
            await connection.execute(SQL["hint"], PROBE_CHANNEL)
            async with asyncio.timeout(PROBE_HEARD_WITHIN_S):
                await heard.wait()
        finally:
            await connection.remove_listener(PROBE_CHANNEL, hear)

    with contextlib.suppress(TimeoutError):
        await pool.run(try_it)
    if heard.is_set():
        return []
    text = "notifications do not arrive: workers find new work by polling only"
    return [
        Finding(
            Level.WARNING, "silent_listener", text, "is a pooler in between? say so: add ?pgbouncer=true to the URL"
        )
    ]


def _skew(now: datetime, before: datetime, after: datetime) -> list[Finding]:
    apart = max(before - now, now - after)
    if apart < LARGE_CLOCK_SKEW:
        return []
    text = f"this machine's clock and the database's are {apart.total_seconds():.0f} s apart"
    return [Finding(Level.NOTE, "clock_skew", text + "; leases and run-at follow the database's", "check NTP on both")]


def _transactions(rows: list[Any], now: datetime) -> list[Finding]:
    return [
        Finding(
            Level.WARNING,
            "long_transaction",
            f"backend {row['pid']} of {row['usename']} ({row['application_name'] or 'no name'}) has held a transaction"
            f" open for {(now - row['xact_start']).total_seconds() / 60:.0f} min: dead rows cannot be removed",
            f"end it where it runs, or: select pg_terminate_backend({row['pid']});",
        )
        for row in rows
        if row["xact_start"] is not None and now - row["xact_start"] > LONG_TRANSACTION
    ]


def _dead_rows(rows: list[Any]) -> list[Finding]:
    return [
        Finding(
            Level.WARNING,
            "dead_rows",
            f"redrive.{row['relname']} has {row['dead']:,} dead rows beside {row['live']:,} live ones",
            f"end long transactions, then: vacuum redrive.{row['relname']};",
        )
        for row in rows
        if row["dead"] > MANY_DEAD_ROWS and row["dead"] > 2 * row["live"]
    ]


def _indexes(found: dict[str, bool], expected: frozenset[str]) -> list[Finding]:
    missing = sorted(expected - set(found))
    broken = sorted(name for name, valid in found.items() if not valid)
    return [
        *(missing_index(f"redrive.{name}") for name in missing),
        *(
            Finding(
                Level.CRITICAL,
                "broken_index",
                f"the index redrive.{name} is not valid",
                f"reindex index concurrently redrive.{name};",
            )
            for name in broken
        ),
    ]


def _connections(row: Any) -> list[Finding]:
    if row["used"] < 0.9 * row["most"]:
        return []
    text = f"{row['used']} of {row['most']} connections are in use"
    return [Finding(Level.WARNING, "connections", text, "raise max_connections, or put PgBouncer in front")]


def _pooling(pool: Pool) -> list[Finding]:
    if not pool.pooled:
        return []
    text = "the URL says PgBouncer: no LISTEN, so work is found by polling"
    return [Finding(Level.NOTE, "pgbouncer", text, "give workers a direct URL for a quicker pick-up")]


# Reads figures for the metrics of the fleet.

FIGURES = statements("redrive.stores.postgres", "figures.sql")


async def figures(pool: Pool) -> Figures:
    args = (MOST_VALUES, MOST_COUNTED, LATE_AFTER_S)
    text = await pool.run(lambda connection: connection.fetchval(FIGURES["figures"], *args))
    return await asyncio.to_thread(read_figures, text)  # with many kinds it is long


async def overdue(pool: Pool, ages: Mapping[str, float], but: Sequence[str], most: Mapping[str, int]) -> dict[str, int]:
    caps = [most.get(queue, MOST_COUNTED) for queue in ages]
    args = (list(ages), list(ages.values()), list(but), caps)
    rows = await pool.run(lambda connection: connection.fetch(FIGURES["overdue"], *args))
    return {row["queue"]: row["n"] for row in rows if row["n"]}
