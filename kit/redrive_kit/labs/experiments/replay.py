"""Lab 5: failed events are replayed by an operator, first as a dry run; then they are done, and it is on record."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from redrive.kernel.audit import AuditFilter
from redrive_kit.labs.lab_run import Experiment, LabRun
from redrive_kit.labs.world import World

EVENTS = 20
BY, REASON, LIMIT = "alice", "the search server is back", "100"
ITEM = "TASK_RETRY_BATCH_ITEM"


async def run(lab: LabRun, _: float) -> None:
    world = lab.world
    first = await world.worker("first")
    await world.sink.stop()
    await world.publish(EVENTS)
    before = await lab.until("events are failed", "before", lambda now: now.failed == EVENTS)
    failed = await world.events("failed")
    await asyncio.to_thread(first.stop)
    await world.sink.start()
    lab.note("the sink is back; no worker runs, so that what a replay does can be seen by itself")

    said = await _replay(lab, "--dry-run")
    lab.expect("the dry run says how many would be replayed", str(EVENTS) in said, said)
    tried = await lab.look("after the dry run")
    same = tried.counts == before.counts and await world.events("failed") == failed
    lab.expect("the dry run changes nothing", same, tried.words())

    await _replay(lab)
    replayed = await lab.until("failed → pending", "after the replay", lambda now: now.pending == EVENTS)
    lab.expect("attempts are cleared", {one.attempts for one in replayed.waiting} == {0}, replayed.words())
    rows = await world.events("pending")
    lab.expect("the error and the next retry are cleared", not any(_leftover(one) for one in rows))
    lab.expect("replay_count +1", {one["replay_count"] for one in rows} == {1})
    lab.expect("who, why and when are written down", all(map(_signed, rows)), _words(rows[0]))
    await _audited(lab, {str(one["id"]) for one in rows})

    await world.worker("second")
    after = await lab.until("pending → done", "after", lambda now: now.lag == 0)
    lab.expect("all are done, none is failed", after.done == EVENTS and not after.failed, after.words())
    done = await world.events("done")
    lab.expect("a done event still says who replayed it", all(map(_signed, done)), _words(done[0]) if done else "none")
    await lab.same_as_source()


async def _replay(lab: LabRun, *more: str) -> str:
    command = ["outbox", "replay", lab.world.projection, "--by", BY, "--reason", REASON, "--limit", LIMIT, *more]
    code, said = await run_redrive(lab.world, *command)
    lab.note(f"redrive {' '.join(command)}: exit code {code}")
    lab.insist("redrive outbox replay ends with 0", code == 0, said)
    return said


def _leftover(row: dict[str, Any]) -> bool:
    return any(row[name] is not None for name in ("next_retry_at", "error", "error_reason"))


def _signed(row: dict[str, Any]) -> bool:
    who = (row["last_replayed_by"], row["last_replayed_reason"])
    return who == (BY, REASON) and row["last_replayed_at"] is not None


def _words(row: dict[str, Any]) -> str:
    return f"{row['last_replayed_by']}, {row['last_replayed_reason']!r}, {row['last_replayed_at']}"


async def _audited(lab: LabRun, ids: set[str]) -> None:
    store = await lab.world.store()
    rows = await store.audit(AuditFilter(action=ITEM, actor=BY), limit=500)
    mine = [row for row in rows if str(row.task_id) in ids and row.reason == REASON]
    lab.expect(f"the audit log has a {ITEM} of each, by {BY}", len(mine) == len(ids), f"{len(mine)} of {len(ids)}")


REPLAY = Experiment(
    5,
    "replay",
    "failed → pending → done; attempts and error cleared; replay_count +1, who, why, when; audit rows",
    run,
    full={"OUTBOX_MAX_ATTEMPTS": "2", "OUTBOX_BASE_BACKOFF_SECONDS": "0.2", "OUTBOX_MAX_BACKOFF_SECONDS": "1.0"},
    quick={"OUTBOX_MAX_ATTEMPTS": "2", "OUTBOX_BASE_BACKOFF_SECONDS": "0.2", "OUTBOX_MAX_BACKOFF_SECONDS": "0.5"},
)


COMMAND_TIMEOUT_S = 120.0


async def run_redrive(world: World, *arguments: str) -> tuple[int, str]:
    """Returns the exit code and what was said, errors included."""
    return await asyncio.to_thread(_run, world, arguments)


def _run(world: World, arguments: tuple[str, ...]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "redrive.cli", *arguments],
        env=world.environment(),
        cwd=world.cwd,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())
