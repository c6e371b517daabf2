"""Reactions: what a feature adds to a move of one of its tasks, in the transaction that makes the move.

The task's row names the feature that reacts, so it does not matter who moves the task: a worker, recovery, an operator,
a bulk operation. A process that does not know the feature leaves the row to one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.errors import ReactionFailed, RedriveError
from redrive.kernel.audit import Audit
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Transition
from redrive.kernel.task import NewTask, State


@dataclass(slots=True, frozen=True)
class Rows:
    """Rows of a feature's own tables: a named statement of its ``.sql`` file, run once for all ``values``.

    The statement has one parameter, a JSON array of the values.
    """

    feature: str
    statement: str
    values: tuple[Mapping[str, Any], ...]


@dataclass(slots=True, frozen=True)
class Effects:
    """What lands together with a move. New joins come before the tasks that are their members, and all of them before
    the task's own arrival at its join: the last member may add further ones."""

    tasks: Sequence[NewTask] = ()
    postings: Sequence[Posting] = ()
    audits: Sequence[Audit] = ()
    rows: Sequence[Rows] = ()
    joins: Sequence[NewJoin] = ()
    closes: Sequence[UUID] = ()  # joins that get no further members


@dataclass(slots=True, frozen=True)
class Landed:
    """A task whose move has been made: where it was, where it is now, and what is known about it."""

    task_id: UUID
    was: State
    state: State
    feature: str
    facts: Mapping[str, Any]  # what the feature wrote into the row when it enqueued the task
    kind: str
    queue: str
    attempt_count: int
    max_attempts: int
    replay_count: int
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    join: UUID | None = None  # the join that it is a member of


# Pure, and quick: it runs inside the store's transaction. It sees what landed, which may be another state than was
# asked for (a requested cancel wins over a retry).
React = Callable[[Transition, Landed], Effects | None]


class Reactions:
    """The reactions that this process knows, by feature."""

    def __init__(self, known: Mapping[str, React] | None = None) -> None:
        self._known = dict(known or {})
        self.names = tuple(self._known)

    def __contains__(self, feature: object) -> bool:
        return feature in self._known

    def effects_of(self, moves: Iterable[tuple[Transition, Landed]]) -> Effects:
        """Returns the effects of all these moves as one; rows for the same statement are gathered."""
        found = [self._effects(transition, landed) for transition, landed in moves]
        return merged(effects for effects in found if effects is not None)

    def _effects(self, transition: Transition, landed: Landed) -> Effects | None:
        try:
            effects = self._known[landed.feature](transition, landed)
            return None if effects is None else _checked(effects)
        except Exception as error:
            raise reaction_failed(
                f"the feature {landed.feature!r}", f"to react to task {landed.task_id}", error
            ) from error


_PARTS: Mapping[str, type] = {
    "tasks": NewTask,
    "postings": Posting,
    "audits": Audit,
    "rows": Rows,
    "joins": NewJoin,
    "closes": UUID,
}


def _checked(effects: object) -> Effects:
    """Refuses what is no Effects, or holds what is none of its parts: a store would stumble over it."""
    if not isinstance(effects, Effects):
        raise TypeError(f"it returned {type(effects).__name__}, not Effects or None")
    for name, kind in _PARTS.items():
        for each in getattr(effects, name):
            if not isinstance(each, kind):
                raise TypeError(f"among its {name} is {type(each).__name__}, not {kind.__name__}")
    return effects


def features_of(moves: Iterable[tuple[Transition, Landed]]) -> str:
    """Returns whose moves these are, in words."""
    names = sorted({landed.feature for _, landed in moves})
    return ("the feature " if len(names) == 1 else "one of the features ") + ", ".join(map(repr, names))


def reaction_failed(who: str, what: str, error: BaseException) -> ReactionFailed:
    """Returns the error that says that a feature could not do its part of a move."""
    said = error.message if isinstance(error, RedriveError) else f"{type(error).__name__}: {error}"
    return ReactionFailed(
        f"{who} failed {what}: {said}",
        hint="nothing of this move was kept; mend the feature, then retry the task",
    )


def merged(many: Iterable[Effects]) -> Effects:
    """Returns many effects as one; rows for the same statement are gathered."""
    tasks: list[NewTask] = []
    postings: list[Posting] = []
    audits: list[Audit] = []
    rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    joins: list[NewJoin] = []
    closes: list[UUID] = []
    for effects in many:
        tasks += effects.tasks
        postings += effects.postings
        audits += effects.audits
        joins += effects.joins
        closes += effects.closes
        for part in effects.rows:
            rows.setdefault((part.feature, part.statement), []).extend(part.values)
    gathered = [Rows(feature, statement, tuple(values)) for (feature, statement), values in rows.items()]
    return Effects(tasks, postings, audits, gathered, joins, closes)


REACTION_CONFLICT = "REACTION_KEY_CONFLICT"


def conflict_row(who: str, kind: str, taken: Sequence[UUID]) -> Audit:
    """Returns the row: ``who`` wanted to add tasks of a kind, and these have their keys."""
    why = f"{who} wanted to add a task {kind}, and its idempotency key names other work: it was not made"
    return Audit("redrive", REACTION_CONFLICT, why, taken[0], after={"who": who, "kind": kind, "tasks": len(taken)})
