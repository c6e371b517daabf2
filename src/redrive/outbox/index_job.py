"""The record of a projection's rebuild or comparison, which workers and relays read.

Who asked, progress, pause and end are those of an operation. The record says which that is, keeps a second one from
beginning, and tells relays where events go: it is read after events are claimed and before they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from redrive.kernel.records import Put

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

COLLECTION = "outbox_job"
REBUILD, VERIFY = "rebuild", "verify"
MOST_REFUSED = 50  # relays read the record before each request


class Phase(StrEnum):
    """Of a rebuild: what its new index is to live events."""

    NONE = "none"  # it is not there yet: nothing goes there
    FILLING = "filling"  # events go there, too
    SWITCHING = "switching"  # the same; it becomes the live one, whatever happens
    DROPPING = "dropping"  # nothing goes there any more; it is removed


@dataclass(slots=True, frozen=True)
class IndexJob:
    """A rebuild or comparison of a projection's index. ``operation``: None when it is over. ``dropped``: the last index
    that was given up, to which somebody may still be writing. ``refused``: documents of events which the new index of a
    rebuild does not take, and why; ``refused_more``: how many others."""

    kind: str
    projection: str
    operation: str | None = None
    index: str | None = None
    phase: Phase = Phase.NONE
    dropped: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_more: int = 0
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

    def refusing(self, found: Mapping[str, str]) -> IndexJob:
        """Returns it with these documents among those that the new index does not take."""
        fresh = {key: why for key, why in found.items() if key not in self.refused}
        kept = dict(list(fresh.items())[: max(MOST_REFUSED - len(self.refused), 0)])
        more = self.refused_more + len(fresh) - len(kept)
        return replace(self, refused={**self.refused, **kept}, refused_more=more)

    def over(self, phase: Phase, **changes: Any) -> IndexJob:
        """Returns it at its end, without what was refused: that is in the operation's result."""
        return replace(self, phase=phase, refused={}, refused_more=0, **changes)

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
    body = {**record.body, "phase": Phase(record.body["phase"])}
    return IndexJob(kind, projection, version=record.version, **body)
