"""The steps of a comparison: a projection's index is compared with its source, and what differs is mended.

Ranges of keys are compared by digests, where both sides have them: those that are equal are done with, others are
halved until few documents are left. Elsewhere keys and versions are read in their order and merged. What differs is
looked at again, so that events on their way are no differences. Repair publishes: what is missing or stale as the
source has it, and for what is extra a delete with the version behind that of the sink, the least that wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redrive.kernel.operation import Operation, Status, moment
from redrive.outbox.event import MOST_VERSION, split_key
from redrive.outbox.index_job import VERIFY, IndexJob, job_of
from redrive.outbox.operation_driver import Driver, count_of, is_over, rebuildable, state_of
from redrive.outbox.publish_event import event_task
from redrive.outbox.sink import Digest, Divisible, Rebuildable
from redrive.outbox.source import Source
from redrive.outbox.table_source import source_for
from redrive.outbox.verify.differences import Difference, Kind, Looked, look_again
from redrive.outbox.verify.merge_keys import close_all, merge_keys
from redrive.outbox.verify.result import result_words

if TYPE_CHECKING:
    from redrive.kernel.task import NewTask

BEGIN, COMPARE, AGAIN, MENDED = "begin", "compare", "again", "mended"
KEYS_AT_ONCE = 20_000
DIFFERING_AT_ONCE = 2000
MOST_REMEMBERED = 1000  # keys that are looked at again at the end
MOST_SHOWN = 10
PATIENCE_S = 60.0  # for events that are on their way
LOOK_AGAIN_S = 0.5


class Verify:
    """One worker's part of the comparison of a projection."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._store = driver.store
        self._projection = driver.projection
        self._opened: tuple[Source, Rebuildable] | None = None

    async def step(self) -> float | None:
        """Does what comes next. Returns after how many seconds there is more to do; None: nothing of ours."""
        job = await job_of(self._store, VERIFY, self._projection.name)
        found = await self._driver.operation(job)
        if job.operation is None:
            return None
        if found is None or is_over(found[0]):
            await self._driver.write(replace(job, operation=None))
            return None
        operation, record = found
        wait = await self._driver.waits(operation, record)
        if wait != 0.0:
            return wait
        return await self._driver.carefully(operation, lambda: self._next(operation, job))

    async def _next(self, operation: Operation, job: IndexJob) -> float:
        step = state_of(operation).get("step", BEGIN)
        if step == BEGIN:
            source, sink = await self._open()
            await sink.refresh()
            total = await count_of(source)
            await self._driver.save(replace(operation, total=total), step=COMPARE, place="", ends=[None])
        elif step == COMPARE:
            await self._compare(operation)
        elif step == AGAIN:
            return await self._again(operation)
        else:
            return await self._mended(operation, job)
        return 0.0

    # -- ranges ----------------------------------------------------------------------------------------------------

    async def _compare(self, operation: Operation) -> None:
        """Compares the next range: what lies behind ``place`` up to the first of ``ends``."""
        state = state_of(operation)
        place, ends = str(state["place"]), list(state["ends"])
        if not ends:
            await self._driver.save(operation, step=AGAIN, since=moment(await self._store.now()))
            return
        (source, sink), before = await self._open(), ends[0]
        ranges = await self._digests(place, before)
        if ranges is not None and ranges[0] == ranges[1]:
            await self._driver.save(operation, done=ranges[0].count, place=before, ends=ends[1:])
            return
        if ranges is not None and isinstance(sink, Divisible) and ranges[1].count > KEYS_AT_ONCE:
            middle = await sink.nth(place, before, ranges[1].count // 2)
            if middle is not None and middle != before:
                await self._driver.save(operation, ends=[middle, *ends])
                return
        ours, theirs = source.versions(place, before), sink.scan(None, place, before)
        try:
            found = await merge_keys(ours, theirs, KEYS_AT_ONCE, DIFFERING_AT_ONCE)
        finally:
            await close_all(ours, theirs)
        after: dict[str, Any] = {"place": before, "ends": ends[1:]} if found.end else {"place": found.last}
        await self._judge(operation, found.differing, done=found.keys, **after)

    async def _digests(self, after: str, before: str | None) -> tuple[Digest, Digest] | None:
        """Returns the digests of a range, of source and sink; None: not both of them have some."""
        source, sink = await self._open()
        ours = await source.digest(after, before) if isinstance(sink, Divisible) else None
        theirs = None if ours is None else await sink.digest(after, before)
        return None if ours is None or theirs is None else (ours, theirs)

    # -- what differs ----------------------------------------------------------------------------------------------

    async def _judge(self, operation: Operation, keys: Sequence[str], *, done: int, **after: Any) -> None:
        """Looks at what differs again, counts what does so still, and mends it where that is wanted."""
        looked = await self._look(keys)
        state = state_of(operation)
        moving = [*state.get("moving", ()), *looked.moving]
        unseen = int(state.get("unseen") or 0) + max(len(moving) - MOST_REMEMBERED, 0)
        kept: dict[str, Any] = {"moving": moving[:MOST_REMEMBERED], "unseen": unseen}
        await self._count_and_mend(operation, looked, done, {**kept, **after})

    async def _count_and_mend(self, operation: Operation, looked: Looked, done: int, after: dict[str, Any]) -> None:
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        events: list[NewTask] = []
        if state.get("repair"):
            mended = [one for one in looked.differences if one.kind is not Kind.AHEAD]
            events = [self._event(one) for one in mended]
            remembered = [*state.get("mended", ()), *(one.key for one in mended)]
            after = {**after, "mended": remembered[:MOST_REMEMBERED]}
            result["repaired"] = int(result.get("repaired") or 0) + len(events)
        for kind, number in Counter(one.kind.value for one in looked.differences).items():
            shown = [one.key for one in looked.differences if one.kind.value == kind]
            result[kind] = int(result.get(kind) or 0) + number
            result[f"{kind}_keys"] = [*result.get(f"{kind}_keys", ()), *shown][:MOST_SHOWN]
        await self._driver.save(
            operation, done=done, note=result_words(result) or None, result=result, events=events, **after
        )

    def _event(self, one: Difference) -> NewTask:
        """Returns the event that mends a document. It is fenced by its version: what happens meanwhile is newer."""
        name, own, record = self._projection.name, self._driver.settings.max_attempts, one.record
        if record is None:
            version = min((one.version or 0) + 1, MOST_VERSION)
            return event_task(name, *split_key(one.key), "delete", version, max_attempts=own)
        wanted = record.entity_type, record.entity_id, "upsert", record.version, record.payload, record.routing
        return event_task(name, *wanted, max_attempts=own)

    # -- its end ---------------------------------------------------------------------------------------------------

    async def _again(self, operation: Operation) -> float:
        """Looks at what was on its way until it has arrived, or patience is at its end."""
        state = state_of(operation)
        keys = list(state.get("moving", ()))
        looked = await self._look(keys)
        waited = (moment(await self._store.now()) - int(state["since"])) / 1_000_000
        if looked.moving and waited < PATIENCE_S and not looked.differences:
            return LOOK_AGAIN_S
        if looked.moving and waited < PATIENCE_S:
            await self._count_and_mend(operation, looked, 0, {"moving": looked.moving})
            return LOOK_AGAIN_S
        unseen = int(state.get("unseen") or 0)
        after = {"moving": [], "on_their_way": len(looked.moving) + unseen, "step": MENDED}
        await self._count_and_mend(operation, looked, 0, {**after, "since": moment(await self._store.now())})
        return 0.0

    async def _mended(self, operation: Operation, job: IndexJob) -> float:
        """Ends it, after what was mended has arrived; says what did not."""
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        looked = await self._look(list(state.get("mended", ())))
        waited = (moment(await self._store.now()) - int(state["since"])) / 1_000_000
        if looked.moving and waited < PATIENCE_S:
            return LOOK_AGAIN_S
        if state.get("repair"):
            result["left"] = len(looked.differences)
            result["left_keys"] = [one.key for one in looked.differences][:MOST_SHOWN]
        result["on_their_way"] = int(state.get("on_their_way") or 0) + len(looked.moving)
        over = replace(operation, work=replace(operation.work, result=result))
        note = result_words(result) or "ids and versions are those of the source"
        await self._driver.end(over, Status.COMPLETED, replace(job, operation=None), note)
        return 0.0

    async def _look(self, keys: Sequence[str]) -> Looked:
        if not keys:
            return Looked()
        source, sink = await self._open()
        return await look_again(self._store, self._projection, source, sink, keys)

    async def _open(self) -> tuple[Source, Rebuildable]:
        if self._opened is None:
            self._opened = await source_for(self._store, self._projection), rebuildable(self._projection)
        return self._opened
