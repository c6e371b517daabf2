"""Finds what somebody means by a few characters: a task, a cause, an operation, a trace, a scope, a kind or a queue."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import CauseUnknown, InvalidInput, TaskNotFound
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.task import MAX_TEXT
from redrive.kernel.trace import trace_id_of
from redrive.ops import causes, inspect

MOST_NAMES = 10
SHORTEST_BEGINNING = 6  # of an id: shorter ones are words


@dataclass(slots=True, frozen=True)
class Match:
    """One thing that fits: ``field`` says what it is (task, cause, operation, or a filter of the list of tasks)."""

    field: str
    value: str


async def find(store: Store, words: str) -> list[Match]:
    """Returns everything that fits, the most exact first."""
    text = words.strip()
    if not text or len(text) > MAX_TEXT:
        return []
    found = await _by_id(store, text)
    if found:
        return found
    found = await _by_beginning(store, text) + await _by_label(store, text)
    found += [Match("kind", name) for name in _like(text, await inspect.known_kinds(store))]
    found += [Match("queue", name) for name in _like(text, await inspect.known_queues(store))]
    return found + await _cause(store, text)


async def _by_id(store: Store, text: str) -> list[Match]:
    try:
        [task_id] = await inspect.meant(store, [text])
        if await store.statuses([task_id]):
            return [Match("task", str(task_id))]
    except (InvalidInput, TaskNotFound):
        pass
    if await store.record(OPERATIONS, text) is not None:
        return [Match("operation", text)]
    return []


async def _by_beginning(store: Store, text: str) -> list[Match]:
    """Returns the latest tasks whose ids begin so; those of the same minute begin alike."""
    digits = text.replace("-", "").lower()
    if len(digits) < SHORTEST_BEGINNING or not set(digits) <= set("0123456789abcdef"):
        return []
    return [Match("task", str(one)) for one in await inspect.beginning_with(store, digits[:32], MOST_NAMES)]


async def _by_label(store: Store, text: str) -> list[Match]:
    trace = trace_id_of(text) or text
    labels = {("traceId", trace): Query(trace_id=trace, limit=1, brief=True)}
    labels["scope", text] = Query(scope=text, limit=1, brief=True)
    return [Match(*label) for label, query in labels.items() if await store.find(query)]


def _like(text: str, names: set[str]) -> list[str]:
    """Returns names that begin with the text, then those that hold it."""
    folded = text.casefold()
    fits = [name for name in names if folded in name.casefold()]
    return sorted(fits, key=lambda name: (not name.casefold().startswith(folded), name))[:MOST_NAMES]


async def _cause(store: Store, text: str) -> list[Match]:
    try:
        return [Match("cause", (await causes.show(store, text)).row.fingerprint)]
    except (CauseUnknown, InvalidInput):
        return []
