"""Looks for what somebody types: things by a few characters of their names, failures by words in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from redrive.errors import CauseUnknown, InvalidInput, TaskNotFound
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.payload import CUT
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.reads import CauseOrder
from redrive.kernel.task import MAX_TEXT, Task
from redrive.kernel.trace import trace_id_of
from redrive.ops import causes, inspect
from redrive.ops.causes import Cause
from redrive.ops.pages import LONGEST_IN_A_LIST
from redrive.ops.views import Sight

MOST_NAMES = 10
SHORTEST_BEGINNING = 6  # of an id: shorter ones are words
LONGEST_WORDS = 200
CAUSES_LOOKED_AT, CAUSES_FOUND = 500, 20
TASKS_PER_PIECE, TASKS_FOUND = 200, 50
MOST_TASKS = 5000  # in one call
LONGEST_SECONDS = 0.5  # and no more of them are begun after this
_OPEN = ("kind", "queue", "group", "scope", "trace_id", "error_code", "error_reason", "failure_type", "dead_reason")
_CLOSED = ("error_message", "payload")


# -- failures by words -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What a search has found so far. ``looked`` tasks were looked at, back to ``to``; ``before`` is where to go on,
    None when there is nothing left."""

    causes: list[Cause] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    looked: int = 0
    to: datetime | None = None
    before: int | None = None


async def search(
    store: Store,
    words: str,
    which: FailureFilter,
    sight: Sight,
    before: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Returns causes and failed tasks in which all the words stand, in what the caller may see of them: causes first,
    then tasks, from the latest back, in bounded pieces."""
    wanted = words.casefold().split()
    if not wanted or len(words) > LONGEST_WORDS:
        raise InvalidInput(f"search for 1 to {LONGEST_WORDS} characters", hint="a few words are enough")
    found = Found()
    if before is None:
        known = await _known(store, which)
        found.causes = [one for one in known if _stands_in(wanted, _cause_text(one, sight))][:CAUSES_FOUND]
    ends = clock() + LONGEST_SECONDS
    upto = None if before is None else before - 1
    while len(found.tasks) < TASKS_FOUND and found.looked < MOST_TASKS:
        piece = await store.failed(which, limit=TASKS_PER_PIECE, upto=upto, newest=True, documents=LONGEST_IN_A_LIST)
        for task in piece:
            found.looked, found.to, found.before = found.looked + 1, task.failed_at, task.failed_seq
            if _stands_in(wanted, _task_text(task, sight)):
                found.tasks.append(task)
                if len(found.tasks) == TASKS_FOUND:
                    break
        if len(piece) < TASKS_PER_PIECE and len(found.tasks) < TASKS_FOUND:
            found.before = None
        if found.before is None or clock() >= ends:
            break
        upto = found.before - 1
    return found


async def _known(store: Store, which: FailureFilter) -> list[Cause]:
    found = await causes.list_causes(store, which, limit=CAUSES_LOOKED_AT, status=causes.ALL, order=CauseOrder.LAST)
    return found.causes


def _stands_in(words: list[str], text: str) -> bool:
    return all(word in text for word in words)


def _task_text(task: Task, sight: Sight) -> str:
    names = _OPEN + (_CLOSED if sight.whole else ())
    values = (getattr(task, name) for name in names)
    said = [str(value) for value in values if value is not None and value is not CUT]
    return "\n".join((str(task.id), *said, str(task.error_summary or ""))).casefold()


def _cause_text(cause: Cause, sight: Sight) -> str:
    row = cause.row
    said = [row.fingerprint, row.code, row.reason, row.failure_type, str(row.summary or ""), *cause.kinds]
    said += [text for text in (cause.note, cause.owner) if text]
    return "\n".join([*said, row.message] if sight.whole else said).casefold()


# -- things by a few characters ---------------------------------------------------------------------------------------


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
        [task_id] = await inspect.resolve_ids(store, [text])
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
