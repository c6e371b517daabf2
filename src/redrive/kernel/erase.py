"""Erase: which tasks and which rows of the audit log lose what they carry about a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

ERASED = "erased"  # what stands where a text must stand
# Statements of features about a person, by fixed names.
PERSONAL, ERASE, BELONGING = "personal", "erase", "belonging"
ALL_ROWS = 2**31 - 1


def digest_of(scope: str) -> str:
    """Returns what a scope is known by where something has to go on without it: nothing that says whose it was."""
    return hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(slots=True, frozen=True)
class Erase:
    """Empties finished tasks with their attempts, dead letters and keys, and rows of the audit log; live tasks are left
    alone.

    Audit rows are given by number, with the digest that stays of them; those in ``telling`` keep ``after``, which tells
    of a removal. ``tombstone`` takes the place of the scope. With ``scope``, causes also lose what they quote of
    tasks of that scope, of which nothing else may be left. ``rows`` is how many rows of its tables each statement of a
    feature may touch at most; None: all that are meant.
    """

    tombstone: str
    task_ids: tuple[UUID, ...] = ()
    scope: str | None = None
    holds: tuple[tuple[str, str], ...] = ()  # target and name of those that lose their reason
    audit: Mapping[int, str] = field(default_factory=dict)
    telling: tuple[int, ...] = ()
    rows: int | None = None
    callbacks: str | None = None  # a scope: what joins would enqueue about it goes before anything else of the Commit

    @property
    def about_somebody(self) -> bool:
        """True if it names tasks or a scope, whose data features may hold, too."""
        return bool(self.task_ids) or self.scope is not None


def place_of(feature: str) -> str:
    """Returns under which name an erasure counts a feature's rows."""
    return f"{feature}_rows"


def subject_of(
    scope: str | None, task_ids: Iterable[UUID | str], tombstone: str | None = None, rows: int | None = None
) -> str:
    """Returns the one argument of a feature's statements about a person: a scope and its digest, tasks, what takes the
    place of the scope, and how many rows may be touched."""
    tasks, digest = [str(task_id) for task_id in task_ids], None if scope is None else digest_of(scope)
    about = {"scope": scope, "digest": digest, "tasks": tasks, "tombstone": tombstone}
    return json.dumps({**about, "limit": rows or ALL_ROWS})
