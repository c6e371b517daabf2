"""Tasks that nobody may retry by themselves: a feature says which of its own these are, and what to do instead.

An item of a batch that is settled and paid for is one: run again, it would do work that nobody is charged for. Stores
ask inside the transaction of the retry, and only for tasks of features that have a guard; previews ask beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.errors import RedriveError


class Withheld(str):
    """Why a task is not retried (``why``) and what to do instead (``hint``), as one text: among the tasks that were
    skipped it stands where others have their state."""

    __slots__ = ("hint", "why")
    why: str
    hint: str

    def __new__(cls, why: str, hint: str) -> Withheld:
        made = super().__new__(cls, f"{why}; {hint}")
        made.why, made.hint = why, hint
        return made


@dataclass(slots=True, frozen=True)
class RetryGuard:
    """Which tasks of a feature are not retried. ``about`` gets a task's facts, and returns what the statement has to
    know of it; None where the task may be retried anyway. ``statement`` names one of the feature's, which only reads:
    it gets a JSON array of these, each with its ``task``, and returns rows with the ``task`` of those that are
    withheld. ``told`` says why, by such a row."""

    statement: str
    about: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    told: Callable[[Mapping[str, Any]], Withheld]

    def parameters(self, tasks: Iterable[tuple[UUID, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Returns what the statement gets for these tasks and their facts."""
        found = ((task_id, self.about(facts)) for task_id, facts in tasks)
        return [{"task": str(task_id), **about} for task_id, about in found if about is not None]

    def withheld(self, rows: Iterable[Mapping[str, Any]]) -> dict[UUID, Withheld]:
        """Returns the tasks that the statement named, and why they are withheld."""
        return {UUID(str(row["task"])): self.told(row) for row in rows}


Guards = Mapping[str, RetryGuard]  # by feature


class RetryWithheld(RedriveError):
    """Ends a transaction that would retry what is withheld: the store then applies the rest of the Commit."""

    def __init__(self, tasks: Mapping[UUID, Withheld]) -> None:
        super().__init__("tasks of a feature that may not be retried")
        self.tasks = tasks


def by_feature(
    guards: Guards, tasks: Iterable[tuple[UUID, str | None, Mapping[str, Any]]]
) -> dict[str, Sequence[dict[str, Any]]]:
    """Returns what the guard of each feature is asked, where there is something to ask."""
    of: dict[str, list[tuple[UUID, Mapping[str, Any]]]] = {}
    for task_id, feature, facts in tasks:
        if feature is not None and feature in guards:
            of.setdefault(feature, []).append((task_id, facts))
    asked = {feature: guards[feature].parameters(found) for feature, found in of.items()}
    return {feature: found for feature, found in asked.items() if found}
