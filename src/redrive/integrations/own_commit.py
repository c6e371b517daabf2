"""What becomes part of the caller's own transaction: a Commit that only adds, and whose statements its rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.commit import CloseJoin, Commit
from redrive.kernel.feature import Feature
from redrive.kernel.task import NewTask, check_feature, refuse_reserved
from redrive.stores.features import Features


@dataclass(slots=True, frozen=True)
class OwnCommit:
    """A Commit, and the features that its rows may belong to. ``repeated``: keys that were posted before, when it was
    applied."""

    commit: Commit
    features: Sequence[Feature] = ()
    repeated: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not self.commit.only_adds:
            raise InvalidInput(
                "only new tasks, joins, postings, rows and audit rows can be part of a transaction of one's own",
                hint="moves of tasks and other changes go without connection=",
            )
        for task in self.tasks:
            refuse_reserved(task.idempotency_key, own=task.own)
            if task.feature is not None:
                check_feature(task)

    @property
    def tasks(self) -> Sequence[NewTask]:
        return self.commit.enqueues

    @property
    def plain(self) -> bool:
        """Whether it is tasks and nothing else, which also a database role may add that only enqueues."""
        belongs = any(task.own or task.feature is not None or task.join is not None for task in self.tasks)
        return self.commit.only_enqueues and not belongs

    @property
    def closed(self) -> list[UUID]:
        """Joins that get no further members."""
        controls = [control.join_id for control in self.commit.controls if isinstance(control, CloseJoin)]
        return [*(join.id for join in self.commit.joins if not join.open), *controls]

    def known(self, dialect: str) -> Features:
        """Returns the features' statements in a dialect; nothing is read where there are no rows."""
        return Features(self.features if self.commit.rows else (), dialect)
