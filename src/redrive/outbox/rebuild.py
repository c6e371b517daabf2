"""The steps of a rebuild: a projection's source is read page by page into a new index while events go on, then that
becomes the live one.

No update is lost, because from before the first page is read until the new index is live, events go to both:

1. The new index is made. Then the job's record says so (FILLING): a relay that reads it from now on writes to both.
2. The fence. Relays read that record after they have claimed events. So one that does not know has claimed before the
   record was there; the rebuild notes the time, and waits until nothing runs any more that was claimed until then. Who
   is frozen or dead loses its lease: its events are claimed anew, by somebody who knows. What it writes when it wakes
   up goes to the live index alone, and does no harm: its events are not done before a relay wrote them to both.
3. Versions of deleted documents are carried over, then pages are read. What was published before the fence is in the
   source by now, or its delete in the live index; what comes later goes to both. Versions decide, so it does not matter
   which of a page and an event is first.
4. Keys, versions and lives of the new index are compared with the source's. What is missing or stale is looked at
   again, so that events on their way are no differences, and written again; where that does not help either, the
   rebuild fails. What the new index has and the source does not, or in a newer version, came by events meanwhile, and
   stays.
5. The record says SWITCHING: from here on it will be the live one, also if whoever does that dies, or somebody cancels.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redrive.errors import ChangedMeanwhile
from redrive.ids import new_id
from redrive.kernel.operation import Operation, Status, moment
from redrive.outbox.compare import Kind, Looked
from redrive.outbox.event import Event, Op, split_key
from redrive.outbox.index_job import REBUILD, IndexJob, Phase, job_of
from redrive.outbox.index_watch import note_rebuilt
from redrive.outbox.lives import event_of_record, with_lives
from redrive.outbox.operations import Driver, state_of
from redrive.outbox.sink import NoSuchIndex, Rebuildable, Remembering, Sink
from redrive.outbox.sink_writer import SinkWriter
from redrive.outbox.source import Record
from redrive.outbox.verdict import Done, Failed, Superseded

if TYPE_CHECKING:
    from redrive.outbox.projection import Projection

logger = logging.getLogger("redrive.outbox")
BEGIN, FENCE, DELETED, SCAN, COMPARE, SWITCH = "begin", "fence", "deleted", "scan", "compare_pages", "switch"
FORMER_COMPARE = "compare"  # before the first release; its places were keys
PAGE = 500
MOST_REMEMBERED = 1000
PATIENCE_S = 60.0  # for events that are on their way when everything else was compared
LOOK_AGAIN_S = 0.2
CLOCK_MARGIN_US = 1000  # times are rounded on their way
MOST_SHOWN = 10


def events_of_records(projection: Projection, records: Sequence[tuple[Record, int]]) -> tuple[list[Event], list[str]]:
    """Returns the events of records with the bases of their lives, and those of their keys of which the application's
    document= makes none, with why."""
    events, unfit = list[Event](), list[str]()
    for record, base in records:
        try:
            events.append(event_of_record(projection, record, base))
        except Exception as error:
            unfit.append(f"{record.key}: {type(error).__name__}: {error}"[:300])
    return events, unfit


def delete_of(key: str, version: int, base: int = 0) -> Event:
    """Returns the event that deletes a document by its key."""
    return Event(new_id(), *split_key(key), Op.DELETE, version, base=base)


class NotNow(Exception):
    """The sink did not take all of a page: it is written again."""


class RefusedDocument(Exception):
    """Documents that the sink never will take, more than are allowed."""

    def __init__(self, refused: Sequence[str]) -> None:
        some = "a document" if len(refused) == 1 else f"{len(refused)} documents"
        super().__init__(f"the new index does not take {some} of a page")
        self.refused = refused


def _size(payload: Any) -> int:
    return len(json.dumps(payload, ensure_ascii=False, default=str))


class Rebuild(Driver):
    """One worker's part of the rebuild of a projection."""

    kind = REBUILD

    async def advance(self, operation: Operation, job: IndexJob) -> float | None:
        if job.phase is Phase.SWITCHING:
            await self._switch(operation, job)
            return None
        do = {
            BEGIN: self._begin,
            FENCE: self._fence,
            DELETED: self._carry_deleted,
            SCAN: self._scan,
            COMPARE: self._compare,
            FORMER_COMPARE: self._compare_anew,
            SWITCH: self._decide,
        }[(state := state_of(operation)).get("step", BEGIN)]
        try:
            self._check_refused(operation, job)
            await do(operation, job)
        except RefusedDocument as error:
            await self._give_up(self._with_refused(operation, error.refused), job, str(error))
        waits = do == self._fence or (do == self._compare and state["place"] is None)
        return LOOK_AGAIN_S if waits else 0.0

    # -- its steps -------------------------------------------------------------------------------------------------

    async def _begin(self, operation: Operation, job: IndexJob) -> None:
        assert job.index is not None
        sink, total = self.sink(), await self.count()
        if job.dropped is not None:  # somebody may have made it late, and died before it was removed again
            await sink.drop(job.dropped)
        await sink.create(job.index)
        try:
            begun = replace(operation, total=total)
            await self.save(begun, job=replace(job, phase=Phase.FILLING), step=FENCE)
        except ChangedMeanwhile:
            await self._drop_late(sink, job.index)
            raise

    async def _drop_late(self, sink: Rebuildable, index: str) -> None:
        """Removes an index that was made late, for a rebuild which is over."""
        now = await job_of(self.store, REBUILD, self.projection.name)
        if now.index != index or now.given_up(index):
            await sink.drop(index)

    async def _fence(self, operation: Operation, job: IndexJob) -> None:
        """Waits for what was claimed by relays that may not have known of the new index."""
        until = state_of(operation).get("fenced_at")
        if until is None:  # after the record is written: who claims later reads it
            until = moment(await self.store.now()) + CLOCK_MARGIN_US
            await self.save(operation, fenced_at=until)
            return
        [row] = await self.store.sql.feature_rows("outbox", "claimed_until", self.projection.queue, until)
        if not row["n"]:
            await self.save(operation, step=DELETED, place="")
        elif (note := f"waits for {row['n']} events that were claimed before it began") != operation.note:
            await self.save(operation, note=note)

    async def _carry_deleted(self, operation: Operation, job: IndexJob) -> None:
        """Tells the new index which versions were deleted: a late, older event must not bring a document back. What the
        source has is left out: the new index has what the source has, whatever was wrong with the old one."""
        sink: Sink = self.projection.sink()
        place = str(state_of(operation)["place"])
        found = await sink.deleted(place, PAGE) if isinstance(sink, Remembering) else ()
        if not found:
            await self.save(operation, step=SCAN, place=None)
            return
        there = {one.key for one in await (await self.source()).fetch([one.key for one in found])}
        gone = [delete_of(one.key, one.version, one.base or 0) for one in found if one.key not in there]
        await self._write_events(job, gone)
        await self.save(operation, place=found[-1].key)

    async def _scan(self, operation: Operation, job: IndexJob) -> None:
        state = state_of(operation)
        page = await (await self.source()).page(state["place"], min(PAGE, self.projection.batch))
        written, refused = await self._write(job, page.records)
        self._check_refused(operation, job, refused)
        await self.save(
            self._with_refused(operation, refused),
            done=written,
            skipped=len(refused),
            step=COMPARE if page.next is None else SCAN,
            place=page.next or "",
        )

    async def _write(self, job: IndexJob, records: Sequence[Record]) -> tuple[int, list[str]]:
        """Writes records into the new index; returns how many it has, and those that it does not take, with why."""
        sink, source = self.projection.sink(), await self.source()
        found = await with_lives(self.store, self.projection.name, source, sink, records, live=False)
        events, unfit = events_of_records(self.projection, [(record, life.start) for record, life in found])
        refused = await self._write_events(job, events)
        return len(events) - len(refused), [*unfit, *refused]

    async def _compare_anew(self, operation: Operation, job: IndexJob) -> None:
        await self.save(operation, step=COMPARE, place="")

    async def _compare(self, operation: Operation, job: IndexJob) -> None:
        """Compares what the new index has with the source, a part at a time; then what was on its way meanwhile."""
        state = state_of(operation)
        moving = list(state.get("moving", ()))
        if state["place"] is not None:
            await self.sink().refresh(job.index)
            found = await (await self.comparison(job.index)).of_source(state["place"] or None)
            keys, place_after = found.differing, found.next
            since = moment(await self.store.now())
        else:
            keys, moving, place_after, since = moving, [], None, state["since"]
        looked = await self._differences(job, keys)
        if looked.differences:
            looked = await self._write_again(job, looked)
        missing = int(state.get("missing") or 0) + sum(one.kind is Kind.MISSING for one in looked.differences)
        stale = int(state.get("stale") or 0) + sum(one.kind is Kind.STALE for one in looked.differences)
        shown = [*state.get("shown", ()), *(f"{one.key} ({one.kind.value})" for one in looked.differences)][:MOST_SHOWN]
        moving = [*moving, *looked.moving][:MOST_REMEMBERED]  # they go to both indexes: it is no harm to forget some
        waited = (moment(await self.store.now()) - int(since)) / 1_000_000
        if place_after is None and state["place"] is None and (not moving or waited > PATIENCE_S):
            await self._judge(operation, job, missing, stale, shown)
            return
        after: dict[str, Any] = {"missing": missing, "stale": stale, "shown": shown, "moving": moving, "since": since}
        await self.save(operation, place=place_after, **after)

    async def _differences(self, job: IndexJob, keys: Sequence[str]) -> Looked:
        """Returns what is missing or stale of these keys; what is newer than in the source came by events."""
        found = await (await self.comparison(job.index)).again(keys)
        found.differences = [one for one in found.differences if one.kind in (Kind.MISSING, Kind.STALE)]
        return found

    async def _write_again(self, job: IndexJob, looked: Looked) -> Looked:
        """Writes what differs as the source has it now; returns what differs still."""
        await self._write(job, [one.record for one in looked.differences if one.record is not None])
        again = await self._differences(job, [one.key for one in looked.differences])
        return Looked(again.differences, [*looked.moving, *again.moving])

    async def _judge(self, operation: Operation, job: IndexJob, missing: int, stale: int, shown: list[str]) -> None:
        """Goes on if the new index has what the source has, but for what may be refused; else it has failed."""
        refused = operation.skipped + len(job.refused) + job.refused_more
        if missing <= refused and not stale:
            await self.save(operation, step=SWITCH, moving=[], shown=[])
            return
        number = missing + stale - min(missing, refused)
        text = f"the new index differs from the source in {number:,} document{'' if number == 1 else 's'}"
        await self._give_up(operation, job, f"{text}: {', '.join(shown)}")

    def _check_refused(self, operation: Operation, job: IndexJob, page: Sequence[str] = ()) -> None:
        """Raises if the new index has refused more documents than it may: of pages, and of events meanwhile."""
        number = operation.skipped + len(page) + len(job.refused) + job.refused_more
        if number > int(state_of(operation).get("allow_refused") or 0):
            raise RefusedDocument([*page, *_refusals(job)])

    def _with_refused(self, operation: Operation, refused: Sequence[str]) -> Operation:
        """Returns the operation with the first documents that were refused, and why, in its result."""
        assert operation.work is not None
        if not refused:
            return operation
        first = [*operation.work.result.get("refused", ()), *refused][:MOST_SHOWN]
        return replace(operation, what=replace(operation.work, result={**operation.work.result, "refused": first}))

    async def _decide(self, operation: Operation, job: IndexJob) -> None:
        """Decides to switch. An empty source in place of an index that is not empty is rather a mistake."""
        sink = self.sink()
        if not operation.done and not state_of(operation).get("allow_empty"):
            await sink.refresh()
            async for one in sink.scan():
                text = (
                    f"the source is empty, and the live index has documents ({one.key}); --allow-empty if it is meant"
                )
                await self._give_up(operation, job, text)
                return
        await sink.refresh(job.index)
        number = len(job.refused) + job.refused_more
        after = self._with_refused(operation, _refusals(job))
        await self.save(after, job=job.over(Phase.SWITCHING), skipped=number)

    # -- its ends --------------------------------------------------------------------------------------------------

    async def _switch(self, operation: Operation, job: IndexJob) -> None:
        assert job.index is not None
        await self.sink().swap(job.index)
        await note_rebuilt(self.store, self.projection)
        await self.end(operation, Status.COMPLETED, replace(job, operation=None, phase=Phase.NONE))

    async def _give_up(self, operation: Operation, job: IndexJob, why: str) -> None:
        await self.end(operation, Status.STOPPED, job.over(Phase.DROPPING), why)

    async def clean_up(self, job: IndexJob) -> None:
        """Drops the new index of a rebuild that was cancelled or has failed: events stop going there first. One that
        was cancelled when it switched is switched all the same: somebody may have begun to."""
        assert job.index is not None
        try:
            if job.phase is Phase.SWITCHING and await self._switch_late(job):
                return
            if job.phase is not Phase.DROPPING:
                await self.write(job.over(Phase.DROPPING))
                job = await job_of(self.store, REBUILD, self.projection.name)
            if job.phase is Phase.DROPPING and job.index is not None:
                await self.sink().drop(job.index)
                await self.write(replace(job, operation=None, phase=Phase.NONE, dropped=job.index))
        except ChangedMeanwhile:
            raise
        except Exception as error:  # the duty comes round again
            extra = {"event": "outbox.rebuild.cleanup", "projection": self.projection.name}
            logger.warning("%s: the index of a rebuild is not removed yet: %s", job.projection, error, extra=extra)

    async def _switch_late(self, job: IndexJob) -> bool:
        try:
            await self.sink().swap(str(job.index))
        except NoSuchIndex:  # somebody has removed it
            return False
        await note_rebuilt(self.store, self.projection)
        await self.write(replace(job, operation=None, phase=Phase.NONE))
        return True

    # -- what it works with ----------------------------------------------------------------------------------------

    async def _write_events(self, job: IndexJob, events: Sequence[Event]) -> list[str]:
        """Writes events to the new index alone; returns which of them the sink never will take, and why. What it does
        not take now is raised: all of it is written again. Deletes that redrive remembers for its sink are looked up
        after a page was read, so that what was deleted since is not brought back."""
        if not events:
            return []
        size = self.projection.request_size(self.settings)
        writer = SinkWriter(self.projection, size, self.store, self.stopping, job.index)
        await writer.write(events, {event.id: _size(event.payload) for event in events})
        refused = list[str]()
        for event in events:
            verdict = writer.verdicts.get(event.id)
            if isinstance(verdict, Failed):
                refused.append(f"{event.key}: {verdict.reason}: {verdict.message}"[:300])
            elif not isinstance(verdict, Done | Superseded):
                raise NotNow(f"{event.key}: {'the worker stops' if verdict is None else verdict.message}")
        return refused


def _refusals(job: IndexJob) -> list[str]:
    """Returns the documents of events that the new index has refused, and why."""
    return [f"{key}: {why}" for key, why in job.refused.items()]
