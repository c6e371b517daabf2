"""Erasing what is known about a person: which tasks and which rows of the audit log lose what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

ERASED = "erased"  # what stands where a text must stand


@dataclass(slots=True, frozen=True)
class Erase:
    """Finished tasks with their attempts, dead letters and keys, and rows of the audit log (by number, with the digest
    that stays of them; ``telling`` are those that keep what they tell, ``after``). Tasks that are live are left alone.
    ``tombstone`` takes the place of their scope. With ``scope``, also what causes quote of tasks of
    that scope, of which nothing else may be left."""

    tombstone: str
    task_ids: tuple[UUID, ...] = ()
    scope: str | None = None
    holds: tuple[tuple[str, str], ...] = ()  # target and name of those that lose their reason
    audit: Mapping[int, str] = field(default_factory=dict)
    telling: tuple[int, ...] = ()
