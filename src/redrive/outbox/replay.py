"""Replays failed events: they are tried again, from their first attempt on. It is the replay of tasks, of the queues of
projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.records import Put
from redrive.ops import failed
from redrive.ops.access import Role
from redrive.ops.allowance import PlannedAction
from redrive.ops.failed import Replayed
from redrive.ops.matches import Matches, matching
from redrive.ops.operator.session import Session
from redrive.outbox.event import queue_of

DEFAULT_LIMIT = 100
MOST = 1_000_000  # events of one replay


@dataclass(slots=True, frozen=True)
class Part:
    """What a replay is about, of one projection: the first ``number`` of what failed."""

    projection: str
    matches: Matches
    number: int

    @property
    def cancelled(self) -> int:
        """How many of the number were given up before: those come behind all that are failed."""
        return max(self.number - self.matches.failed, 0)


@dataclass(slots=True, frozen=True)
class ReplayPlan:
    """What a replay is about, projection after projection: what fails later is another matter. ``approval`` says why a
    second operator would have to agree."""

    parts: Sequence[Part]
    approval: str | None = None

    @property
    def number(self) -> int:
        return sum(part.number for part in self.parts)

    def preview(self, *, dry_run: bool) -> Replayed:
        """Returns what would be replayed."""
        given_up = sum(part.cancelled for part in self.parts)
        return Replayed(self.number, given_up, dry_run=dry_run, needs_approval=self.approval)


async def plan_replay(session: Session, projections: Sequence[str], limit: int, forgotten: bool) -> ReplayPlan:
    """Returns what a replay of these projections would be about, at most ``limit`` events of all of them together."""
    session.may(Role.OPERATOR)
    parts: list[Part] = []
    left = limit
    for name in projections:
        found = await matching(session.store, FailureFilter(queue=queue_of(name), forgotten=forgotten or None))
        number = min(found.total, left)
        left -= number
        parts.append(Part(name, found, number))
    planned = PlannedAction(Action.RETRY, sum(part.number for part in parts))
    return ReplayPlan(parts, await session.needs(planned))


async def replay(
    session: Session, plan: ReplayPlan, reason: str | None, progress: Callable[[int], None] = lambda _: None
) -> Replayed:
    """Replays exactly this, or, where a second operator has to agree, nothing: all of it is counted with its first
    piece."""
    who = session.may(Role.OPERATOR)

    async def act(puts: Sequence[Put]) -> Replayed:
        sums = Replayed()
        for part in plan.parts:
            if not part.number:
                continue
            done = await failed.replay(
                session.store,
                part.matches,
                actor=who,
                reason=reason,
                limit=part.number,
                progress=progress,
                puts=puts,
            )
            puts = ()
            sums.matched += done.matched
            sums.cancelled += done.cancelled
            sums.retried += done.retried
            sums.skipped += done.skipped
            sums.bulk_ids += done.bulk_ids
        return sums

    return await session.alone(PlannedAction(Action.RETRY, plan.number), act)
