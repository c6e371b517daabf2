"""Samples store size and dead rows so that doctor can report growth."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Diagnosis, Finding, Level
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record

COLLECTION = "vitals"
SAMPLE_EVERY_S = 300.0
TREND_WINDOW, SHORTEST_TREND = timedelta(hours=3), timedelta(minutes=20)
MANY_DEAD_ROWS = 20_000
LARGE_STORE_BYTES = 1 << 30


async def write_sample(store: Store) -> None:
    body = {"values": (await store.diagnose(brief=True)).vitals}
    await store.apply(Commit(puts=[Put(COLLECTION, str(new_id()), body)]))


async def trends(store: Store, diagnosis: Diagnosis) -> list[Finding]:
    """Returns findings about what grows and should not. Needs workers that have run for a while: they write the
    samples."""
    now, values = diagnosis.now, diagnosis.vitals
    samples = [
        record for record in await store.records(COLLECTION, limit=100) if now - record.created_at <= TREND_WINDOW
    ]
    if not samples or now - samples[-1].created_at < SHORTEST_TREND:
        return []
    hours = (now - samples[-1].created_at).total_seconds() / 3600
    return [*_dead(values, samples, hours), *_size(values, samples, hours)]


def _dead(values: Mapping[str, int], samples: list[Record], hours: float) -> list[Finding]:
    found = []
    for name, dead in values.items():
        table = name.removeprefix("dead:")
        # Newest first, as records come: never less than before means that nobody has removed any.
        path = [dead, *(record.body["values"].get(name, 0) for record in samples)]
        rising = all(later >= earlier for later, earlier in pairwise(path))
        if table != name and dead > MANY_DEAD_ROWS and dead > 2 * path[-1] and rising:
            found.append(
                Finding(
                    Level.WARNING,
                    "dead_rows_rise",
                    f"dead rows of redrive.{table} rose from {path[-1]:,} to {dead:,} in"
                    f" {hours:.1f} h, and vacuum removed none",
                    f"look for long transactions above, then: vacuum (verbose) redrive.{table};",
                )
            )
    return found


def _size(values: Mapping[str, int], samples: list[Record], hours: float) -> list[Finding]:
    now, then = values.get("size", 0), samples[-1].body["values"].get("size", 0)
    if now < LARGE_STORE_BYTES or now < 1.5 * then:
        return []
    text = f"the store grew from {then / LARGE_STORE_BYTES:.1f} to {now / LARGE_STORE_BYTES:.1f} GiB in {hours:.1f} h"
    return [Finding(Level.NOTE, "size", text, "watch its disk; REDRIVE_HISTORY_DAYS says how long history is kept")]
