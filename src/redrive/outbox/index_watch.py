"""Watches the index of a projection: that it is still the one that was written to, and that it is compared with its
source now and then.

A search server that comes back without its data is given a new, empty index by the next event, and nothing else would
say so. What the index is known by is therefore kept here (a document for each projection), by one worker of the fleet.
One that is emptied in place has the same identity: a few rows of the source are looked up in it. Numbers are not
compared: they differ while events are under way, and counting costs as much as there is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redrive.errors import ChangedMeanwhile, Conflict, InvalidInput
from redrive.kernel.commit import Commit
from redrive.kernel.operation import moment
from redrive.kernel.records import Put
from redrive.outbox.index_job import REBUILD, VERIFY, job_of
from redrive.outbox.sink import Identified, Rebuildable
from redrive.outbox.source import Together

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.outbox.settings import OutboxSettings

logger = logging.getLogger("redrive.outbox")
COLLECTION = "outbox_index"
MOST = 1000
HOUR_US = 3_600_000_000
SAMPLE = 20  # rows of the source that are looked up in the index
ACTOR = "redrive"


@dataclass(slots=True, frozen=True)
class IndexState:
    """What is known of the index of a projection. ``lost_at``: since when it is another than the one that was written
    to, or was ``emptied``; ``filled``: documents were seen in it; ``differs``: in how many documents, when it was last
    compared. Times are microseconds."""

    projection: str
    identity: str | None = None
    lost_at: int | None = None
    verified_at: int | None = None
    differs: int = 0
    filled: bool = False
    emptied: bool = False
    version: int = 0

    @property
    def problem(self) -> str | None:
        """Returns what is wrong, and what to type."""
        if self.lost_at is not None:
            what = "was emptied" if self.emptied else "was lost (it is gone, or another is in its place)"
            return f"its index {what}: redrive outbox rebuild {self.projection}"
        if self.differs:
            return (
                f"{self.differs:,} documents differ from the source: redrive outbox verify {self.projection} --repair"
            )
        return None

    def put(self) -> Put:
        values = asdict(self)
        del values["projection"], values["version"]
        return Put(COLLECTION, self.projection, values, self.version, self.projection)


def _of(record: Any) -> IndexState:
    return IndexState(record.id, version=record.version, **record.body)


async def index_state(store: Store, projection: str) -> IndexState:
    """Returns what is known of the index of a projection."""
    record = await store.record(COLLECTION, projection)
    return IndexState(projection) if record is None else _of(record)


async def index_states(store: Store) -> list[IndexState]:
    """Returns what is known of the indexes of all projections."""
    return [_of(record) for record in await store.records(COLLECTION, limit=MOST)]


async def change_state(store: Store, projection: str, **changes: Any) -> None:
    """Writes down something about an index, whatever others write meanwhile."""
    while True:
        try:
            await store.apply(Commit(puts=[replace(await index_state(store, projection), **changes).put()]))
            return
        except ChangedMeanwhile:
            continue


async def note_rebuilt(store: Store, projection: Projection) -> None:
    """Notes the index that a rebuild has made the live one."""
    sink = projection.sink_to_look_at()
    if isinstance(sink, Identified):
        now = moment(await store.now())
        identity = await sink.identity() or None
        well = {"lost_at": None, "emptied": False, "filled": False, "differs": 0}
        await change_state(store, projection.name, identity=identity, verified_at=now, **well)


async def note_verified(store: Store, projection: str, differs: int) -> None:
    """Notes in how many documents a comparison has found the index to differ."""
    await change_state(store, projection, verified_at=moment(await store.now()), differs=differs)


async def note_written(store: Store, projection: Projection, settings: OutboxSettings) -> bool:
    """Notes the index that this process has written its first events to, at once: one that is lost before somebody has
    looked at it would never have been known. Returns whether that was done."""
    try:
        await watch_index(store, projection, settings, lambda: True)
    except Exception as error:  # the events are written, whatever it is: it is tried again with the next ones
        logger.debug("%s: its index cannot be looked at: %r", projection.name, error)
        return False
    return True


async def watch_index(
    store: Store, projection: Projection, settings: OutboxSettings, stopping: Callable[[], bool]
) -> None:
    """Looks whether the index is the one that it was, and whether it is time to compare it."""
    for kind in (REBUILD, VERIFY):
        if (await job_of(store, kind, projection.name)).operation is not None:
            return  # whoever does that notes what follows
    sink = projection.sink_to_look_at()
    state, now = await index_state(store, projection.name), await store.now()
    found = await sink.identity() if isinstance(sink, Identified) else None
    if not found and not projection.served:
        found = None  # it may be a file on the host of those who write to it
    after = state if state.verified_at is not None else replace(state, verified_at=moment(now))
    if found and state.identity in (None, found):
        try:
            emptied = await _is_emptied(store, projection, sink, state, settings)
        except Exception as error:  # of the source: this role may not be allowed to read it
            logger.debug("%s: its source cannot be looked at: %r", projection.name, error)
            emptied = None
        gone = state.emptied if emptied is None else emptied
        filled, lost_at = state.filled or emptied is False, (state.lost_at or moment(now)) if gone else None
        after = replace(after, identity=found, lost_at=lost_at, filled=filled, emptied=gone)
    elif found is not None and state.identity is not None:
        after = replace(after, lost_at=state.lost_at or moment(now), emptied=False)
    if after != state:
        await store.apply(Commit(puts=[after.put()]))
    if after.lost_at is not None and state.lost_at is None:
        extra = {"event": "outbox.index_lost", "projection": projection.name}
        logger.error("%s: %s", projection.name, after.problem, extra=extra)
    if stopping():
        return
    if after.lost_at is not None and settings.rebuild_lost:
        await _begin(store, projection, rebuild=True)
    elif after.lost_at is None and is_due(after, now, settings) and await _reads_a_table(store, projection):
        await _begin(store, projection, rebuild=False)


async def _is_emptied(
    store: Store, projection: Projection, sink: object, state: IndexState, settings: OutboxSettings
) -> bool | None:
    """Returns whether an index in which documents were seen has none any more, though its source has rows and all
    events have arrived; None where that cannot be said. Usually a few rows are read, and looked up by their keys."""
    if not isinstance(sink, Rebuildable) or not await _reads_a_table(store, projection):
        return None
    from redrive.outbox.table_source import source_for

    keys = [one.key for one in (await (await source_for(store, projection)).page(None, SAMPLE)).records]
    if not keys:
        return None
    if await sink.find(keys):
        return False
    if not state.filled:
        return None  # it may never have been built
    await sink.refresh()
    async for _ in sink.scan():
        return None  # others are there: a comparison says what is missing
    # Looked at last: whatever was inserted meanwhile has an event that waits.
    rows = await store.sql.feature_rows("outbox", "event_counts", settings.max_processing_seconds)
    behind = any(
        row["pending"] + row["processing"] + row["failed"] for row in rows if row["projection"] == projection.name
    )
    return None if behind else True


def is_due(state: IndexState, now: datetime, settings: OutboxSettings) -> bool:
    """Returns whether it is time to compare an index with its source, and the hour for it."""
    if not settings.verify_hours or state.verified_at is None:
        return False
    window = settings.verify_window
    if window is not None:
        minute = now.hour * 60 + now.minute
        first, last = window
        if not (first <= minute < last if first <= last else minute >= first or minute < last):
            return False
    return moment(now) - state.verified_at >= settings.verify_hours * HOUR_US


async def _reads_a_table(store: Store, projection: Projection) -> bool:
    from redrive.outbox.table_source import TableSource, source_for

    if not isinstance(projection.sink_to_look_at(), Rebuildable):
        return False
    try:
        return isinstance(await source_for(store, projection), TableSource | Together)
    except InvalidInput:  # it has none
        return False


async def _begin(store: Store, projection: Projection, *, rebuild: bool) -> None:
    from redrive.outbox.operations import begin_rebuild, begin_verify

    try:
        if rebuild:
            await begin_rebuild(store, projection, actor=ACTOR, reason="its index was lost (OUTBOX_REBUILD_LOST)")
        else:
            await begin_verify(store, projection, actor=ACTOR, reason="now and then (OUTBOX_VERIFY_HOURS)")
    except (Conflict, InvalidInput) as error:
        logger.warning("%s: %s", projection.name, error, extra={"event": "outbox.watch", "projection": projection.name})
