"""The names a soak uses, what it has acknowledged, and what its sink has to have."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

QUEUE = "soak"
PROJECTION = "soak"
PLAIN, FLAKY, FAILING, BOOKED = "SOAK_PLAIN", "SOAK_FLAKY", "SOAK_FAILING", "SOAK_BOOKED"
KINDS = (PLAIN, FLAKY, FAILING, BOOKED)
ENTITY = "soak"
BOOKING_TABLE = "redrive_soak_booking"
FAILS_AFTER = 2  # attempts of those that fail on purpose
MANY = 10_000  # of the others: a soak may cost them many (a killed worker, a cut connection), and none may be the last


@dataclass(slots=True)
class Books:
    """``tasks``: the kind of each acknowledged task. ``entities``: the newest version of each entity, and whether that
    was a deletion."""

    tasks: dict[UUID, str] = field(default_factory=dict)
    events: set[UUID] = field(default_factory=set)
    entities: dict[str, tuple[int, bool]] = field(default_factory=dict)
    fresh: list[UUID] = field(default_factory=list)  # acknowledged since somebody last looked
    refused: int = 0

    def offered(self) -> int:
        return len(self.tasks) + len(self.events)

    def task(self, task_id: UUID, kind: str) -> None:
        self.tasks[task_id] = kind
        self.fresh.append(task_id)

    def event(self, task_id: UUID) -> None:
        self.events.add(task_id)
        self.fresh.append(task_id)

    def changed(self, entity: str, version: int, deleted: bool) -> None:
        """Notes a change; an older one that comes late changes nothing."""
        known = self.entities.get(entity)
        if known is None or version > known[0]:
            self.entities[entity] = (version, deleted)

    @property
    def documents(self) -> dict[str, int]:
        """What the sink has to have: versions by key."""
        return {f"{ENTITY}:{key}": version for key, (version, gone) in self.entities.items() if not gone}
