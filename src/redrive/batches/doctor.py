"""What is wrong with batches, for doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.batches.batch_builder import forgotten
from redrive.batches.names import FEATURE
from redrive.batches.remote.upkeep import steps
from redrive.batches.settings import BatchSettings
from redrive.feature import Finding, Level, Settings, Store

TOLD_AFTER_HOURS = 1.0
MOST = 20  # of a sort are named


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong with batches of both sorts."""
    return [*await examine_open(store, settings), *await examine_remote(store, settings)]


async def examine_open(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each batch that was left open: nothing follows its items until it is sealed."""
    hours = settings.of(BatchSettings).open_hours
    return [
        Finding(
            Level.WARNING,
            "batches_forgotten",
            f"batch {batch.id} is open, and nobody has added to it since {batch.added_at:%Y-%m-%d %H:%M} UTC:"
            f" {batch.total} items, and nothing follows them; it is cancelled after {hours:g} h",
            f"is its maker still at work? else: redrive batch cancel {batch.id}",
            ("page", f"/batches/{batch.id}"),
        )
        for batch in await forgotten(store, min(TOLD_AFTER_HOURS, hours / 2))
    ]


async def examine_remote(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each batch of which nothing has moved for ``BATCH_STUCK_HOURS``, and for each whose next
    step is failed."""
    hours = settings.of(BatchSettings).stuck_hours
    failed = [row async for row in steps(store) if row["step_state"] == "failed"][:MOST]
    named = {str(row["id"]) for row in failed}
    still = await store.sql.feature_rows(FEATURE, "remote_stuck", hours)
    return [
        *await _unknown(store),
        *(
            _finding(
                row,
                f"is {row['state']}, and its next step has failed",
                f"redrive show {row['step_task']} says why; redrive retry {row['step_task']} when that is mended",
            )
            for row in failed
        ),
        *(
            _finding(
                row,
                f"is {row['state']}, and nothing of it has moved for {hours:g} h",
                f"is a worker alive, and the provider? redrive batch show {row['id']}",
            )
            for row in still
            if str(row["id"]) not in named
        ),
    ]


async def _unknown(store: Store) -> list[Finding]:
    """Returns that items have ended without their provider's word, if so."""
    [row] = await store.sql.feature_rows(FEATURE, "unknown_items", None)
    if not row["n"]:
        return []
    text = (
        f"{row['n']} items of {row['batches']} remote batches ended without their provider's word: a job of theirs may"
    )
    text += " have run, or run now, and was not charged"
    hint = "redrive batch reconcile asks the providers, and says what ran all the same; where one cannot be asked, "
    hint += f"redrive batch reconcile {row['first']} --accept --reason '…' says that it stays unknown"
    return [Finding(Level.WARNING, "batches_unknown", text, hint, ("page", f"/batches/{row['first']}"))]


def _finding(row: Mapping[str, Any], what: str, hint: str) -> Finding:
    money = f"; {row['frozen']} of account {row['account']} are frozen for it" if row["frozen"] else ""
    text = f"remote batch {row['name'] or row['id']} {what}{money}"
    return Finding(Level.WARNING, "batches_stuck", text, hint, ("page", f"/batches/{row['id']}"))
