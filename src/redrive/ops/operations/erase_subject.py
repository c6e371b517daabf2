"""Whose data is erased, and how it is found in rows and documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Target
from redrive.kernel.erase import BELONGING, ERASED, PERSONAL, place_of, subject_of
from redrive.kernel.operation import Erasure, Operation
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query
from redrive.kernel.task import LIVE, AuditRow, State
from redrive.ops.audit_rows import SUMMARIES, content_digest, erasable

# A shorter scope is looked for as a whole value only: inside of sentences it would be found everywhere.
SHORTEST_QUOTED = 6
DEEPEST_CLEANED = 100
MOST_OF_TRACE = 100  # tasks, the newest: among so many there is one from before
# What people wrote into documents, and what names somebody there, also in before and after of the audit log. Nothing
# else is looked at or replaced: redrive's own words ("retry", "state", "queued") may be somebody's scope as well.
WRITTEN = frozenset({"reason", "decision_reason", "fixed", "note", "owner", "needed", "detail", "title", "told"})
LABELS = frozenset({"scope", "trace_id", "traces", "group"})
_SAID = frozenset({"reason", "decision_reason", "fixed", "note"})  # goes altogether, where it is about the scope


def erasure_of(operation: Operation) -> Erasure:
    """Returns what an operation does that erases."""
    assert isinstance(operation.what, Erasure), f"{operation.action} erases nothing"
    return operation.what


@dataclass(frozen=True)
class Subject:
    """A scope, or one task. ``tombstone`` takes the place of the scope, and says only which erasure it was.
    ``traces``: trace ids of its tasks by which others have asked for something."""

    scope: str | None
    task_id: UUID | None
    tombstone: str
    traces: tuple[str, ...] = ()

    @classmethod
    def of(cls, operation: Operation) -> Subject:
        which = operation.which
        tombstone, traces = f"{ERASED}:{operation.id[-12:]}", erasure_of(operation).traces
        return cls(which.scope, which.ids[0] if which.ids else None, tombstone, traces)

    def concerns(self, row: AuditRow) -> bool:
        """Returns whether a row of the audit log is about it, or quotes it, and is not emptied yet."""
        if row.erased is not None:
            return False
        if row.action in SUMMARIES:
            return self.quoted_in(row.before)  # what was asked for; the rest of it quotes nobody
        if self.task_id is not None:
            return row.task_id == self.task_id
        if row.target is not None and row.target.startswith("group:") and self.named_in(row.target[6:]):
            return True
        return row.scope == self.scope or self.named_in(row.reason) or self.quoted_in([row.before, row.after])

    def named_in(self, text: str | None) -> bool:
        """Returns whether a text is the scope, or quotes it as a word of its own."""
        return self.scope is not None and text is not None and self._cleaned_text(text) != text

    def quoted_in(self, document: Any) -> bool:
        return bool(self.cleaned(document) != document)

    def cleaned(self, value: Any, depth: int = 0, *, said: bool = True) -> Any:
        """Returns a document without it: without labels that are the scope, and texts that quote it. ``said``: this
        value is such a label or text, as is a document that is nothing but a text."""
        if self.scope is None or depth > DEEPEST_CLEANED:
            return value
        if isinstance(value, str):
            return self._cleaned_text(value) if said else value
        if isinstance(value, list):
            return [self.cleaned(item, depth + 1, said=said) for item in value]
        if isinstance(value, dict):
            return {
                name: self._cleaned_work(item, depth + 1)
                if name == "work"
                else self.cleaned(item, depth + 1, said=name in WRITTEN or name in LABELS)
                for name, item in value.items()
            }
        return value

    def _cleaned_work(self, work: Any, depth: int) -> Any:
        """Returns the work of a feature without it: what that remembers and has found may be keys, under any name."""
        if not isinstance(work, dict):
            return work
        return {
            name: self._cleaned_all(item, depth) if name in ("state", "result") else item for name, item in work.items()
        }

    def _cleaned_all(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict) and depth <= DEEPEST_CLEANED:
            return {name: self._cleaned_all(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list) and depth <= DEEPEST_CLEANED:
            return [self._cleaned_all(item, depth + 1) for item in value]
        return self.cleaned(value, depth)

    def cleaned_document(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a document without it. What was said in one that is about the scope may be about the person, whether
        it quotes the scope or not; and a short scope is found in it, too."""
        if not self._about(body):
            cleaned: dict[str, Any] = self.cleaned(body)
            return cleaned
        close = {name: self._anywhere.sub(self.tombstone, body[name]) for name in WRITTEN & body.keys() if body[name]}
        cleaned = self.cleaned({**body, **close})
        return {name: ERASED if name in _SAID and value else value for name, value in cleaned.items()}

    def _about(self, value: Any, depth: int = 0) -> bool:
        """Returns whether a document has the scope as its filter."""
        if not isinstance(value, dict) or depth > DEEPEST_CLEANED:
            return False
        return value.get("scope") == self.scope or any(self._about(item, depth + 1) for item in value.values())

    def _cleaned_text(self, text: str) -> str:
        return self.tombstone if text in self._names else self._quoted.sub(self.tombstone, text)

    @cached_property
    def _names(self) -> frozenset[str | None]:
        return frozenset((self.scope, *self.traces))

    @cached_property
    def _quoted(self) -> re.Pattern[str]:
        return _words([name for name in self._names if name and len(name) >= SHORTEST_QUOTED])

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        return _words([name for name in self._names if name])


def _words(names: list[str]) -> re.Pattern[str]:
    """Returns the pattern of these names, each as a word of its own, the longest first."""
    longest = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest)) or '(?!)'})(?!\w)")


def emptied(row: AuditRow) -> AuditRow:
    """Returns what stays of a row: who did what and when, and a digest of the rest, by which its seal stays valid."""
    nothing: dict[str, Any] = dict.fromkeys(erasable(row))
    return replace(row, **nothing, salt=None, erased=content_digest(row))


# -- where else it is named -----------------------------------------------------------------------------------------


async def holds_of(store: Store, subject: Subject) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns paused groups that are named after it, and other pauses whose reason quotes it."""
    if subject.scope is None:
        return [], []
    found = (await store.overview()).holds
    named = [hold.name for hold in found if hold.target == Target.GROUP and subject.named_in(hold.name)]
    return named, [
        (hold.target, hold.name)
        for hold in found
        if not (hold.target == Target.GROUP and hold.name in named) and subject.named_in(hold.reason)
    ]


async def keeps_others(store: Store, name: str) -> bool:
    """Returns whether the pause of this group keeps tasks from running. It is not lifted then: an erasure starts
    nothing."""
    return bool(await store.find(Query(states=LIVE, group=name, limit=1, brief=True)))


async def count_holds(store: Store, subject: Subject) -> int:
    named, quoting = await holds_of(store, subject)
    return len(named) + len(quoting)


def quoted_traces(value: Any) -> set[str]:
    """Returns trace ids that a document names: filters of plans, operations and prunes."""
    found: set[str] = set()
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
            if isinstance(one.get("trace_id"), str):
                found.add(one["trace_id"])
    return found


async def traces_of(store: Store, scope: str, quoted: Iterable[str], before: datetime | None = None) -> tuple[str, ...]:
    """Returns which of these belong to tasks of this scope, as far as tasks or the audit log still know. ``before``: of
    what was there at this moment; a worker's role may add no other to an erasure."""
    found: list[str] = []
    for trace in sorted(quoted):
        known = await store.find(Query(scope=scope, trace_id=trace, limit=MOST_OF_TRACE, brief=True))
        if any(before is None or (task.created_at or before) < before for task in known) or await store.audit(
            AuditFilter(scope=scope, trace_id=trace, until=before), limit=1
        ):
            found.append(trace)
    return tuple(found)


# -- in the store itself, and in the tables of features ----------------------------------------------------------------


async def count_personal(store: Store, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
    """Returns how much is kept about a scope, or about tasks, by place; tasks that run now are counted apart."""
    if scope is not None:
        task_ids = [*task_ids, *await find_belonging(store, scope)]
    found = Counter(await store.personal(scope, task_ids))
    for name in store.features.erasing:
        rows = await store.sql.feature_rows(name, PERSONAL, subject_of(scope, task_ids))
        found[place_of(name)] += rows[0]["n"]
    return dict(found)


async def find_erasable(store: Store, scope: str, limit: int) -> list[UUID]:
    """Returns tasks of a scope that do not run: live, finished, or known by a dead letter only; also those that belong
    to something of the scope without carrying it, which features know."""
    found = await store.erasable(scope, limit)
    others = [one for one in await find_belonging(store, scope, limit, found) if one not in found]
    known = await store.statuses(others) if others else {}
    return [
        *found,
        *(one for one in others if one in known and not (known[one].erased or known[one].state is State.RUNNING)),
    ]


async def find_belonging(store: Store, scope: str, limit: int | None = None, own: Collection[UUID] = ()) -> list[UUID]:
    """Returns tasks, also running ones, that belong to something of a scope and are not erased, so far as features know
    them, and tasks that belong to those or to these of its ``own``."""
    found = dict[UUID, None]()
    for of_scope in (True, False):
        subject = subject_of(scope, (), rows=limit) if of_scope else subject_of(None, [*found, *own], rows=limit)
        for name in store.features.belonging:
            rows = await store.sql.feature_rows(name, BELONGING, subject)
            found |= {UUID(str(row["id"])): None for row in rows}
    return list(found)
