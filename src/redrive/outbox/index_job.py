"""The record of a projection's rebuild or comparison, which workers and relays read.

Who asked, progress, pause and end are those of an operation. The record says which that is, keeps a second one from
beginning, and tells relays where events go: it is read after events are claimed and before they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.kernel.records import Put

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

COLLECTION = "outbox_job"
REBUILD, VERIFY = "rebuild", "verify"


class Phase(StrEnum):
    """Of a rebuild: what its new index is to live events."""

    NONE = "none"  # it is not there yet: nothing goes there
    FILLING = "filling"  # events go there, too
    SWITCHING = "switching"  # the same; it becomes the live one, whatever happens
    DROPPING = "dropping"  # nothing goes there any more; it is removed


@dataclass(slots=True, frozen=True)
class IndexJob:
    """A rebuild or comparison of a projection's index. ``operation``: None when it is over. ``dropped``: the last index
    that was given up, to which somebody may still be writing."""

    kind: str
    projection: str
    operation: str | None = None
    index: str | None = None
    phase: Phase = Phase.NONE
    dropped: str | None = None
    version: int = 0

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.projection}"

    @property
    def extra_index(self) -> str | None:
        """The index that events go to besides the live one."""
        filled = self.operation is not None and self.phase in (Phase.FILLING, Phase.SWITCHING)
        return self.index if filled else None

    def given_up(self, index: str) -> bool:
        """Returns whether an index was dropped, or will be: what could not be written there is no loss."""
        return self.dropped == index or (self.index == index and self.phase is Phase.DROPPING)

    def put(self) -> Put:
        """Returns what writes it, if nobody has in between. Its state is the projection while it is under way: duties
        are given out by it."""
        values = asdict(self)
        del values["kind"], values["projection"], values["version"]
        return Put(COLLECTION, self.id, values, self.version, "" if self.operation is None else self.projection)


async def job_of(store: Store, kind: str, projection: str) -> IndexJob:
    """Returns the rebuild or comparison of a projection: the last one, or one that never was."""
    record = await store.record(COLLECTION, f"{kind}:{projection}")
    if record is None:
        return IndexJob(kind, projection)
    body: Mapping[str, Any] = record.body
    phase = Phase(body["phase"])
    return IndexJob(
        kind, projection, body["operation"], body["index"], phase, dropped=body["dropped"], version=record.version
    )
