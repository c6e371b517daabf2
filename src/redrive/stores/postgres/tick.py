"""Takes a worker's heartbeats, and finds the leases that ran out."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from redrive.errors import RedriveError
from redrive.kernel.machine import ExpiredLease
from redrive.kernel.ports.store import MOST_PROMOTED, Beat, Heard, Heartbeat, Neighbour, TickResult
from redrive.stores.features import Features
from redrive.stores.postgres.bad_rows import about_a_row, past_bad_rows
from redrive.stores.postgres.pool import Pool, fetch, value

FULL_CHECK_EVERY_S = 60.0
MOST_QUEUE_SETS = 100


class Ticks:
    """Ticks, and remembers up to when earlier ticks have seen everything: what lies before that is not walked again."""

    def __init__(self, pool: Pool, features: Features) -> None:
        self._pool = pool
        self._features = features
        # By the queues that a tick looked at: several workers may share a store.
        self.checked: dict[tuple[str, ...], tuple[datetime | None, float]] = {}

    async def tick(self, beat: Heartbeat) -> TickResult:
        now = time.monotonic()
        checked_to, next_full_check = self.checked.get(beat.queues, (None, 0.0))
        full = now >= next_full_check
        args = [
            beat.worker_id,
            beat.host,
            beat.pid,
            list(beat.queues),
            beat.concurrency,
            beat.running,
            beat.version,
            beat.stopping,
            list(beat.duties),
            list(beat.duties.values()),
            None if full else checked_to,
            MOST_PROMOTED,
            round(beat.every * 1000),
            list(self._features.reactions.names),
            list(beat.while_records),
            *_columns(beat.while_records.values()),
            *((None, None) if beat.sheet is None else (beat.sheet.id, beat.sheet.text)),
        ]
        (row,) = await past_bad_rows(self._pool, beat.queues, lambda: fetch(self._pool, "tick", *args), self._features)
        if full and row["checked_to"] is not None:
            next_full_check = now + max(FULL_CHECK_EVERY_S, 20 * (time.monotonic() - now))
        if len(self.checked) >= MOST_QUEUE_SETS:
            self.checked.clear()  # executors may ask for whatever they like
        self.checked[beat.queues] = (row["checked_to"], next_full_check)
        return TickResult(list(row["duties"] or ()), list(row["cancels"]), row["next_due"], row["promoted"])

    async def expired(self, limit: int, feature: str | None) -> list[ExpiredLease]:
        times = [checked_to for checked_to, _ in self.checked.values()]
        since = None if None in times else min((time for time in times if time is not None), default=None)
        found = await fetch(self._pool, "expired", since, limit, feature)
        return [
            ExpiredLease(
                row["id"],
                row["token"],
                row["attempt_count"],
                row["max_attempts"],
                row["worker_id"],
                None,
                row["feature"],
                None,
                row["kind"],
                row["queue"],
                row["trace_id"],
                row["timeout"],
                row["seconds"],
                row["deaths"],
                row["unbegun"],
                row["cut_offs"],
            )
            for row in found
        ]

    async def promote_everywhere(self) -> int:
        """Promotes what is due in any queue, also those that no worker serves; returns how many."""
        try:
            return int(await value(self._pool, "promote", MOST_PROMOTED))
        except RedriveError as error:
            if not about_a_row(error):
                raise
        queues = [row["queue"] for row in await fetch(self._pool, "due_queues")]
        again = past_bad_rows(self._pool, queues, lambda: value(self._pool, "promote", MOST_PROMOTED), self._features)
        return int(await again)


async def beat(pool: Pool, given: Beat) -> Heard:
    by, process = given.judgement, given.process
    (row,) = await fetch(
        pool,
        "beat",
        given.worker_id,
        process.host,
        process.pid,
        list(given.queues),
        given.concurrency,
        given.running,
        given.version,
        given.age,
        round(given.tick_every * 1000),
        given.every_ms,
        round(given.stalled * 1000),
        by.dead_after_ms,
        by.lease_ms,
        process.machine,
        process.birth,
    )
    found = json.loads(row["neighbours"] or "{}")
    neighbours = {
        id_: Neighbour(replace(process, pid=pid, birth=birth), silence, every)
        for id_, (pid, birth, silence, every) in found.items()
    }
    return Heard(row["silent_in"], row["declared"], row["drain"], neighbours)


def _columns(pairs: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [first for first, _ in pairs], [second for _, second in pairs]
