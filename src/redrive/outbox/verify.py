"""The steps of a comparison: a projection's index is compared with its source, and what differs is repaired.

The keys are divided into a thousand ranges or so, whose digests are compared, where both sides have them: each side is
read once for that, and ranges that are equal are done with. A source knows nothing of lives (see ``lives.py``),
so ranges in which a key lives in a later life than its first are not. Of these, or of everything where there are no
digests, keys, versions and lives are read in their order and merged. What differs is looked at again, so that events on
their way are no differences. Repair publishes what the source has, and for what is extra a delete with the version
behind that of the sink, the least that wins. Where the sink is ahead of the source a new life begins behind that.

When many keys are on their way, or were mended, they are waited for before the comparison goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from redrive.kernel.operation import Operation, Status, moment
from redrive.outbox.compare import (
    Difference,
    Kind,
    Looked,
    behind,
    count_of_differences,
    result_words,
    scan_ranges,
)
from redrive.outbox.event import MOST_VERSION, event_task, split_key
from redrive.outbox.index_job import VERIFY, IndexJob
from redrive.outbox.index_watch import note_verified
from redrive.outbox.lives import ERASED_KEYS, later_lives, with_lives
from redrive.outbox.operations import Driver, state_of
from redrive.outbox.sink import Divisible
from redrive.outbox.source import WHOLE, Range

if TYPE_CHECKING:
    from redrive.kernel.task import NewTask

BEGIN, DIGESTS, COMPARE, AGAIN, MENDED = "begin", "digests", "compare", "again", "mended"
PIECES = 1024  # ranges that have digests
LEAST_IN_A_PIECE = 1000
RANGES_AT_ONCE = 100  # that are read in one statement
KEYS_AT_ONCE = 20_000
DIFFERING_AT_ONCE = 2000
MOST_REMEMBERED = 1000  # keys that are looked at again together
MOST_SHOWN = 10
PATIENCE_S = 60.0  # for events that are on their way
LOOK_AGAIN_S = 0.5


class Verify(Driver):
    """One worker's part of the comparison of a projection."""

    kind = VERIFY

    async def clean_up(self, job: IndexJob) -> None:
        await self.write(replace(job, operation=None))

    async def advance(self, operation: Operation, job: IndexJob) -> float | None:
        step = state_of(operation).get("step", BEGIN)
        if step == BEGIN:
            await self.sink().refresh()
            await self.save(replace(operation, total=await self.count()), step=DIGESTS)
        elif step == DIGESTS:
            ranges, same = await self._differing_ranges()
            await self.save(operation, done=same, step=COMPARE, ranges=ranges)
        elif step == COMPARE:
            await self._compare(operation)
        elif step == AGAIN:
            return await self._again(operation)
        else:
            return await self._mended(operation, job)
        return 0.0

    # -- ranges ----------------------------------------------------------------------------------------------------

    async def _differing_ranges(self) -> tuple[Sequence[Range], int]:
        """Returns the ranges whose digests differ, and how many documents the others have; everything, where source or
        sink have no digests."""
        source, sink = await self.source(), self.sink()
        if not isinstance(sink, Divisible):
            return WHOLE, 0
        bounds = await sink.bounds(PIECES, LEAST_IN_A_PIECE)
        ours = await source.digests(bounds)
        if ours is None:
            return WHOLE, 0
        theirs, ranges = await sink.digests(bounds), cast("list[Range]", list(pairwise(["", *bounds, None])))
        later = await later_lives(self.store, self.projection.name, [*ranges, ERASED_KEYS])
        if len(ranges) in later:
            return WHOLE, 0
        same = [at not in later and one == other for at, (one, other) in enumerate(zip(ours, theirs, strict=True))]
        differing = [between for between, equal in zip(ranges, same, strict=True) if not equal]
        return differing, sum(one.count for one, equal in zip(ours, same, strict=True) if equal)

    async def _compare(self, operation: Operation) -> None:
        """Compares the keys of the next ranges, or of a part of them."""
        ranges: list[Range] = [(after, before) for after, before in state_of(operation)["ranges"]]
        if not ranges:
            await self.save(operation, step=AGAIN, since=moment(await self.store.now()))
            return
        some = ranges[:RANGES_AT_ONCE]
        found = await self.compare_keys(some, scan_ranges(self.sink(), some), KEYS_AT_ONCE, DIFFERING_AT_ONCE)
        left = ranges[RANGES_AT_ONCE:] if found.end else behind(found.last, ranges)
        await self._judge(operation, found.differing, done=found.keys, ranges=left)

    # -- what differs ----------------------------------------------------------------------------------------------

    async def _judge(self, operation: Operation, keys: Sequence[str], *, done: int, ranges: Sequence[Range]) -> None:
        """Looks at what differs again, counts what does so still, and mends it where that is wanted."""
        looked = await self.look_again(keys)
        moving = [*state_of(operation).get("moving", ()), *looked.moving]
        await self._count_and_mend(operation, looked, done, {"moving": moving, "ranges": ranges})

    async def _count_and_mend(self, operation: Operation, looked: Looked, done: int, after: dict[str, Any]) -> None:
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        events: list[NewTask] = []
        if state.get("repair"):
            events = await self._events(looked.differences)
            after = {**after, "mended": [*state.get("mended", ()), *(one.key for one in looked.differences)]}
            result["repaired"] = int(result.get("repaired") or 0) + len(looked.differences)
        for kind, number in Counter(one.kind.value for one in looked.differences).items():
            shown = [one.key for one in looked.differences if one.kind.value == kind]
            result[kind] = int(result.get(kind) or 0) + number
            result[f"{kind}_keys"] = [*result.get(f"{kind}_keys", ()), *shown][:MOST_SHOWN]
        if any(len(after.get(name, ())) >= MOST_REMEMBERED for name in ("moving", "mended")):
            after = {"step": AGAIN, "since": moment(await self.store.now()), **after}
        await self.save(operation, done=done, note=result_words(result) or None, result=result, events=events, **after)

    async def _events(self, differences: Sequence[Difference]) -> list[NewTask]:
        """Returns the events that repair documents. They are fenced by their order: what happens meanwhile is newer. A
        new life begins where something is missing because its key was deleted once, and nobody said that it was created
        again; and where the index has something that is not older, though it is not what the source has."""
        name, own = self.projection.name, self.settings.max_attempts
        source, sink = await self.source(), self.sink()
        found: list[NewTask] = []
        for one in differences:
            if one.record is None and (stored := one.stored) is not None:
                base = max((stored.base or 0) - one.life.before, 0)
                version = max(stored.order + 1 - one.life.before - base, 0)
                event = *split_key(one.key), "delete", min(version, MOST_VERSION - one.life.before - base)
                found.append(event_task(name, *event, base=base, max_attempts=own))
        records = [one.record for one in differences if one.record is not None]
        ahead = {one.key: one.stored.order for one in differences if one.kind is Kind.AHEAD and one.stored is not None}
        for record, life in await with_lives(self.store, name, source, sink, records, floors=ahead):
            wanted = record.entity_type, record.entity_id, "upsert", record.version, record.payload, record.routing
            found.append(event_task(name, *wanted, base=life.base, max_attempts=own))
        return found

    # -- its end ---------------------------------------------------------------------------------------------------

    async def _again(self, operation: Operation) -> float:
        """Looks at what was on its way until it has arrived, or patience is at its end."""
        state = state_of(operation)
        looked = await self.look_again(list(state.get("moving", ())))
        if looked.moving and await self._has_patience(state):
            if looked.differences:
                await self._count_and_mend(operation, looked, 0, {"moving": looked.moving, **_still(state)})
            return LOOK_AGAIN_S
        after = {"moving": [], "step": MENDED, "since": moment(await self.store.now())}
        await self._count_and_mend(operation, looked, 0, {**after, **_given_up(state, looked)})
        return 0.0

    async def _mended(self, operation: Operation, job: IndexJob) -> float:
        """Goes on, or ends it, after what was mended has arrived; counts what did not."""
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        looked = await self.look_again(list(state.get("mended", ())))
        if looked.moving and await self._has_patience(state):
            return LOOK_AGAIN_S
        if state.get("repair"):
            result["left"] = int(result.get("left") or 0) + len(looked.differences)
            result["left_keys"] = [*result.get("left_keys", ()), *(one.key for one in looked.differences)][:MOST_SHOWN]
        after = _given_up(state, looked)
        if state["ranges"]:
            await self.save(operation, result=result, step=COMPARE, mended=[], **after)
            return 0.0
        result["on_their_way"] = after["on_their_way"]
        kept = {"repair": state["repair"]} if "repair" in state else {}
        over = replace(operation, what=replace(operation.work, result=result, state=kept))
        note = result_words(result) or "ids and versions are those of the source"
        await note_verified(self.store, self.projection.name, count_of_differences(result))
        await self.end(over, Status.COMPLETED, replace(job, operation=None), note)
        return 0.0

    async def _has_patience(self, state: dict[str, Any]) -> bool:
        """Returns whether events on their way are waited for: a minute, and once it was too short, never again."""
        waited = (moment(await self.store.now()) - int(state["since"])) / 1_000_000
        return waited < PATIENCE_S and not state.get("on_their_way")


def _still(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the step that an operation is in, and since when, so that it stays there."""
    return {"step": state["step"], "since": state["since"]}


def _given_up(state: dict[str, Any], looked: Looked) -> dict[str, Any]:
    """Returns how many keys were on their way for too long, with those that are so still."""
    return {"on_their_way": int(state.get("on_their_way") or 0) + len(looked.moving)}
