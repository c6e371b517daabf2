"""What workers have noted about handlers that harm others: which hold the event loop, which run on when given up."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.handler_notes import (
    BLOCKED_COLLECTION,
    OVER,
    STRAY_COLLECTION,
    UNHANDLED_COLLECTION,
    LoopBlock,
    Stray,
    blocks_of,
    moment,
    stray_of,
    unhandled_of,
)
from redrive.kernel.ports.store import Overview, Store
from redrive.kernel.task import State, Task
from redrive.kernel.wording import counted, span
from redrive.ops.workers import Standing, standing

RECENT = timedelta(hours=1)
UNHANDLED_FOR = timedelta(minutes=1)  # they come again every ten seconds
CLOCKS_PART = timedelta(seconds=5)  # the worker's clock says when, the store's when the worker was started
MOST_READ, MOST_TOLD = 200, 5
AS_PROCESS = 'isolation="process": a process can be killed, a thread cannot'
HAS_IT = "start a worker of the application that has it: redrive work --app module:app"
NOT_ON_THE_LOOP = 'write it as def, or with isolation="process"'


async def strays(store: Store, overview: Overview) -> list[Stray]:
    """Returns handlers that still run though their task was settled without them, the last one first."""
    found = [stray_of(one) for one in await store.records(STRAY_COLLECTION, limit=MOST_READ) if one.state != OVER]
    return [stray for stray in found if _still_runs(stray, overview)]


def describe_stray(stray: Stray, now: datetime) -> str:
    """Returns one of them in words."""
    since = span(max(now - moment(stray.since), timedelta()))
    where = f"still runs in worker {stray.worker_id}"
    return f"the handler of {stray.kind} {stray.task_id} {where}, {since} after it was given up"


async def about(store: Store, task: Task) -> list[tuple[str, str]]:
    """Returns what is noted about this task, as a code and words."""
    told: list[tuple[str, str]] = []
    if found := await store.records(STRAY_COLLECTION, states=(str(task.id),), limit=MOST_TOLD):
        overview = await store.overview()
        running = [stray for stray in map(stray_of, found) if _still_runs(stray, overview)]
        told += [("handler_runs_on", f"{describe_stray(stray, overview.now)}; {_advice(stray)}") for stray in running]
    for record in await store.records(BLOCKED_COLLECTION, ids=[task.kind], limit=1):
        own = [block for block in blocks_of(record) if block.task_id == str(task.id)]
        told += [("loop_blocked", f"it {_describe_block(block)}; {NOT_ON_THE_LOOP}") for block in own[:MOST_TOLD]]
    if task.feature is not None and task.state in (State.QUEUED, State.DELAYED):
        told += [("handed_back", text) for text in await _unhandled(store, await store.now(), task.kind)]
    return told


async def _unhandled(store: Store, now: datetime, kind: str | None = None) -> list[str]:
    """Returns which kinds are handed back lately, in words; of one kind, if it is among them."""
    records = await store.records(UNHANDLED_COLLECTION, ids=None if kind is None else [kind], limit=MOST_READ)
    noted = [one for one in map(unhandled_of, records) if now - moment(one.at) <= UNHANDLED_FOR]
    return [
        f"worker {one.worker_id} hands {one.kind} back: its application has none; it waits for one that has"
        for one in noted
    ]


async def findings(store: Store, overview: Overview) -> list[Finding]:
    """Returns what doctor says about them."""
    now = overview.now
    found = [
        Finding(
            Level.WARNING,
            "handler_runs_on",
            f"{describe_stray(stray, now)}, beside what its worker runs",
            _advice(stray),
        )
        for stray in (await strays(store, overview))[:MOST_TOLD]
    ]
    found += [Finding(Level.NOTE, "handed_back", text, HAS_IT) for text in (await _unhandled(store, now))[:MOST_TOLD]]
    for record in await store.records(BLOCKED_COLLECTION, limit=MOST_READ):
        blocks = [block for block in blocks_of(record) if now - moment(block.at) <= RECENT]
        if blocks:
            last = blocks[0]
            more = f", {counted(len(blocks), 'time')} in the last hour" if len(blocks) > 1 else ""
            text = f"{last.kind} {last.task_id} {_describe_block(last)}{more}"
            found.append(Finding(Level.WARNING, "loop_blocked", text, NOT_ON_THE_LOOP, ("kind", last.kind)))
    return found[: 3 * MOST_TOLD]


def _describe_block(block: LoopBlock) -> str:
    past = "" if block.timeout is None else f", past its timeout of {block.timeout:g} s"
    return (
        f"held the event loop of worker {block.worker_id} for {block.seconds:g} s{past}"
        f" ({moment(block.at):%H:%M:%S}, {block.where}): nothing else ran there meanwhile"
    )


def _advice(stray: Stray) -> str:
    return AS_PROCESS if stray.isolation == "thread" else f"it swallows its cancellation; {AS_PROCESS}"


def _still_runs(stray: Stray, overview: Overview) -> bool:
    """Returns whether the process that it runs in is there: its worker is heard of, and was not started anew."""
    return any(
        worker.id == stray.worker_id
        and standing(worker, overview.now) is not Standing.GONE
        and moment(stray.since) >= worker.started_at - CLOCKS_PART
        for worker in overview.workers
    )
