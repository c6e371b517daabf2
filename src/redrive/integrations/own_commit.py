"""What becomes part of the caller's own transaction: a Commit that only adds, and whose statements its rows are; and
what all families of connections share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.commit import CloseJoin, Commit
from redrive.kernel.feature import Feature
from redrive.kernel.task import NewTask, check_feature, refuse_reserved
from redrive.stores.features import Features
from redrive.stores.refusals import migrate_command

MEMORY = "sqlite:///:memory:"
# What to do for the database of this URL, which has no tables of redrive's; it is empty where the driver does not tell.
Remedy = Callable[[str], str]


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


async def before_the_first_statement() -> None:
    """Waits once, before anything is sent.

    ``app.sync`` finds out that a connection is asynchronous by the first wait, and gives up there: nothing may be
    half done on the caller's connection by then.
    """
    await asyncio.sleep(0)


def migrate(url: str) -> str:
    """Returns how redrive's tables come into a database that has none."""
    if url == MEMORY:
        return "use a connection to the file that redrive's URL names: no command reaches a database in memory"
    return f"connect to the database that redrive's URL names, or run: {migrate_command(url)}"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and what it wraps, each once: SQLAlchemy keeps the driver's in ``orig``, Django chains it. A
    chain may be a circle, by ``raise a from b`` where ``b`` came from ``a``."""
    found: BaseException | None = error
    seen = set[int]()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        inner = getattr(found, "orig", None)
        found = inner if isinstance(inner, BaseException) else found.__cause__
