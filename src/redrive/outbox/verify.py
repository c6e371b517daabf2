"""The steps of a comparison: a projection's index is compared with its source, and what differs is repaired.

Page by page, what the source has is looked up in the index by its keys, then what the index has in the source. What
differs is looked at again, so that events on their way are no differences. Repair publishes what the source has, and
for what is extra a delete with the version behind that of the sink, the least that wins. Where the sink is ahead of the
source a new life begins behind that.

When many keys are on their way, or were repaired, they are waited for before the comparison goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redrive.kernel.operation import Operation, Status, moment
from redrive.outbox.compare import Difference, Kind, Looked, count_of_differences, result_words
from redrive.outbox.event import MOST_VERSION, event_task, split_key
from redrive.outbox.index_job import VERIFY, IndexJob
from redrive.outbox.index_watch import note_verified
from redrive.outbox.lives import with_lives
from redrive.outbox.operations import Driver, state_of

if TYPE_CHECKING:
    from redrive.kernel.task import NewTask

BEGIN, SOURCE, INDEX, AGAIN, REPAIRED = "begin", "source", "index", "again", "repaired"
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
        state = state_of(operation)
        step = state.get("step", BEGIN)
        if step not in (SOURCE, INDEX) and "then" not in state:  # also one that began before the first release
            await self.sink().refresh()
            await self.save(replace(operation, total=await self.count()), step=SOURCE, place=None, moving=[])
        elif step in (SOURCE, INDEX):
            await self._compare(operation, step)
        elif step == AGAIN:
            return await self._again(operation)
        else:
            return await self._repaired(operation, job)
        return 0.0

    async def _compare(self, operation: Operation, step: str) -> None:
        """Compares the next page, and looks at what differs again: counts what does so still, and repairs it where that
        is wanted."""
        comparison, state = await self.comparison(), state_of(operation)
        found = await (comparison.of_source if step == SOURCE else comparison.of_index)(state["place"])
        looked = await comparison.again(found.differing)
        moving = [*state.get("moving", ()), *looked.moving]
        repaired = len(state.get("repaired_keys", ())) + len(looked.differences) if state.get("repair") else 0
        following = step if found.next is not None else INDEX if step == SOURCE else None
        after: dict[str, Any] = {"moving": moving, "place": found.next, "step": following}
        if following is None or max(len(moving), repaired) >= MOST_REMEMBERED:
            after |= {"step": AGAIN, "then": following, "since": moment(await self.store.now())}
        await self._count_and_repair(operation, looked, found.documents, after)

    async def _count_and_repair(self, operation: Operation, looked: Looked, done: int, after: dict[str, Any]) -> None:
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        events: list[NewTask] = []
        if state.get("repair"):
            events = await self._events(looked.differences)
            keys = [one.key for one in looked.differences]
            after = {**after, "repaired_keys": [*state.get("repaired_keys", ()), *keys]}
            result["repaired"] = int(result.get("repaired") or 0) + len(looked.differences)
        for kind, number in Counter(one.kind.value for one in looked.differences).items():
            shown = [one.key for one in looked.differences if one.kind.value == kind]
            result[kind] = int(result.get(kind) or 0) + number
            result[f"{kind}_keys"] = [*result.get(f"{kind}_keys", ()), *shown][:MOST_SHOWN]
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
        looked = await (await self.comparison()).again(list(state.get("moving", ())))
        if looked.moving and await self._has_patience(state):
            if looked.differences:
                await self._count_and_repair(operation, looked, 0, {"moving": looked.moving})
            return LOOK_AGAIN_S
        after = {"moving": [], "step": REPAIRED, "since": moment(await self.store.now())}
        await self._count_and_repair(operation, looked, 0, {**after, **_given_up(state, looked)})
        return 0.0

    async def _repaired(self, operation: Operation, job: IndexJob) -> float:
        """Goes on, or ends it, after what was repaired has arrived; counts what did not."""
        assert operation.work is not None
        state, result = state_of(operation), dict(operation.work.result)
        looked = await (await self.comparison()).again(list(state.get("repaired_keys", ())))
        if looked.moving and await self._has_patience(state):
            return LOOK_AGAIN_S
        if state.get("repair"):
            result["left"] = int(result.get("left") or 0) + len(looked.differences)
            result["left_keys"] = [*result.get("left_keys", ()), *(one.key for one in looked.differences)][:MOST_SHOWN]
        after = _given_up(state, looked)
        if state["then"] is not None:
            await self.save(operation, result=result, step=state["then"], repaired_keys=[], **after)
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


def _given_up(state: dict[str, Any], looked: Looked) -> dict[str, Any]:
    """Returns how many keys were on their way for too long, with those that are so still."""
    return {"on_their_way": int(state.get("on_their_way") or 0) + len(looked.moving)}
