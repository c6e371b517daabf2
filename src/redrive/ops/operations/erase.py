"""Erases what is known about a person, or about one task: previewed, asked for, and carried out piece by piece.

It is an operation like others: written down, approved by a second person, carried out by the workers, resumed where it
was after a crash. Its phases are the trace ids by which somebody asked for its tasks, the tasks (with attempts, dead
letters, keys and causes), the audit log, the small documents, the archive, and the files of the store. Each piece and
how far it has come are one transaction, with a sealed row of the audit log that counts, and does not repeat, what went.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Container, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput, InvalidTransition, StoreError
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.erase import ERASED, Erase
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.machine import Event, Transition
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import FINAL, Erasure, Operation, Status
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import LIVE, AuditRow, State, check_text
from redrive.ops import approvals, causes, drill
from redrive.ops.actions import check_actor
from redrive.ops.alerts.look import COLLECTION as ALERTS
from redrive.ops.allowance import Rule
from redrive.ops.audit import EVERY_ROW, PRUNE_COLLECTION, PRUNE_LASTS_S
from redrive.ops.audit_archive import Archive, archive_at
from redrive.ops.audit_chain import apply_sealed
from redrive.ops.audit_rows import ERASE_SUMMARY, SUMMARIES, content_digest, ids_of
from redrive.ops.operations import lifecycle, plans
from redrive.ops.operations.erase_subject import (
    Subject,
    count_holds,
    count_personal,
    emptied,
    erasure_of,
    find_belonging,
    find_erasable,
    holds_of,
    keeps_others,
    quoted_traces,
    traces_of,
)

logger = logging.getLogger("redrive.operations")
TASKS_PER_PIECE = 200
FEATURE_ROWS_PER_PIECE = 1000  # of a feature's tables, found by the scope
LEFT_FOR_S = 5.0  # how long one waits that this worker cannot carry out
OF_TASKS = {"running", "live", "finished", "attempts", "dead_letters", "audit"}  # what is erased with tasks, by place
PAGES_PER_STEP = 20  # of the audit log, looked through in one step
QUOTING_COLLECTIONS = (plans.COLLECTION, OPERATIONS, approvals.COLLECTION, causes.COLLECTION, drill.COLLECTION, ALERTS)
STILL_IN_THE_LOG = "others read meanwhile, so the log of the file may still hold it; the next pruning empties that"
OUT_OF_DATE = "somebody whom it quotes is erased: ask for it again"
CANNOT_END = "not all of its tasks can be given up: {}"
NOT_LET = (
    "the database's role of workers may not erase tasks of which no feature's function says that they belong to it;"
    " run redrive migrate, or let a worker with the API's role carry it out: {}"
)
NOT_COVERED = "backups, logs, exports and names of accounts in the ledger are not covered: erase there, too"


def _named(tasks: Collection[UUID]) -> str:
    first, *others = tasks
    return f"task {first}" + (f" and {len(others)} more" if others else "")


async def preview(store: Store, scope: str | None, task_id: UUID | None, archive: str | None = None) -> dict[str, int]:
    """Returns how much would be erased, by place; it looks at what the erasure looks at, also through the whole audit
    log. ``running`` tasks are in the way."""
    subject = _subject(scope, task_id)
    await _refuse_unknown_features(store)
    found = Counter(await count_personal(store, scope, [] if task_id is None else [task_id]))
    found["holds"] = await count_holds(store, subject)
    if scope is not None:
        documents = [record.body async for record in _documents(store)]
        quoted = quoted_traces(documents)
        async for row in _rows(store):
            quoted |= quoted_traces([row.before, row.after])
        subject = replace(subject, traces=await traces_of(store, scope, quoted))
        found["documents"] = sum(map(subject.quoted_in, documents))
        tasks = set(await find_belonging(store, scope))
        found["audit"] = sum([_concerns(subject, tasks, row) async for row in _rows(store)])
    kept = archive_at(archive)
    if kept is not None and kept.exists:
        found["archive"] = await asyncio.to_thread(lambda: sum(subject.concerns(row) for row in kept.read()))
    return {place: n for place, n in found.items() if n}


async def begin(
    store: Store,
    scope: str | None,
    task_id: UUID | None,
    *,
    actor: str,
    rule: Rule,
    reason: str | None = None,
    archive: str | None = None,
) -> tuple[Operation, Record | None]:
    """Begins an erasure, or asks for it. Refused while a task of it runs, or another operation is about it."""
    who, why = check_actor(actor), check_text(reason, "reason")
    subject = _subject(scope, task_id)
    if subject.named_in(why):
        raise InvalidInput("the reason names what is to be erased, and stays in the audit log", hint="say it otherwise")
    await _refuse_unknown_features(store)
    found = await count_personal(store, scope, [] if task_id is None else [task_id])
    if found.get("running"):
        raise InvalidTransition(
            f"{found['running']} of these tasks run now", hint="wait until they are done, or cancel them first"
        )
    await _refuse_others(store, subject)
    which = FailureFilter(scope=scope, ids=None if task_id is None else (task_id,))
    total = found.get("live", 0) + found.get("finished", 0)
    operation = Operation(str(new_id()), Erasure(archive=archive), which, who, why, total)
    return await lifecycle.start(store, operation, rule)


async def _refuse_others(store: Store, subject: Subject) -> None:
    open_ones = tuple(status.value for status in Status if status not in FINAL)
    for record in await store.records(OPERATIONS, states=open_ones, limit=1000):
        if subject.scope is not None and subject.quoted_in(record.body):
            raise InvalidTransition(
                f"operation {record.id} is about the same scope", hint="let it end, or cancel it, and try again"
            )


async def _refuse_unknown_features(store: Store) -> None:
    """Refuses where there are tables that this process cannot look into: what they hold would stay, and nobody would
    know."""
    if foreign := (await store.migrations.status()).foreign:
        raise InvalidInput(
            f"there are tables of {', '.join(foreign)}, which this process does not know and cannot erase from",
            hint="name the application that brings them: --app module:app",
        )


async def step(store: Store, operation: Operation, driver: str) -> float | None:
    """Does the next piece. Returns after how many seconds there is more to do; None when it has ended."""
    if foreign := (await store.migrations.status()).foreign:
        return await _leave(store, operation, f"it waits for a worker that knows {', '.join(foreign)}")
    phase, place = erasure_of(operation).phase, erasure_of(operation).place
    subject = Subject.of(operation)
    note = operation.note if phase in ("tasks", "files") else None  # else what it waited for is over
    operation = replace(operation, driver=driver, note=note)
    match phase:
        case "traces":
            await _find_traces(store, operation, subject, int(place or 0))
        case "tasks":
            return await _erase_tasks(store, operation, subject)
        case "rest":
            await _erase_rest(store, operation, subject, int(place))
        case "audit":
            await _erase_audit(store, operation, subject, int(place or 0))
        case "documents":
            await _clean_documents(store, operation, subject)
        case "archive":
            return await _erase_archive(store, operation, subject, place)
        case "replaced":
            await _remove_piece(store, operation, place)
        case "end":
            await _sum_up(store, operation, subject)
        case _:
            await _end(store, operation)
            return None
    return 0.0


# -- phases ------------------------------------------------------------------------------------------------------------


def _quoting(found: Mapping[str, int]) -> int:
    """Returns how much that belongs to no task says something about a scope: causes, joins, rows of features."""
    return sum(n for place, n in found.items() if place not in OF_TASKS)


async def _find_traces(store: Store, operation: Operation, subject: Subject, after: int) -> None:
    """Collects trace ids before the tasks go: later nobody can tell whose they were."""
    if subject.scope is None:
        await store.apply(Commit(puts=[_at(operation, "tasks").put()]))
        return
    quoted = set[str]() if after else quoted_traces([record.body async for record in _documents(store)])
    rows: list[AuditRow] = []
    for _ in range(PAGES_PER_STEP):
        rows = await store.audit(EVERY_ROW, limit=500, after=after)
        quoted |= quoted_traces([[row.before, row.after] for row in rows])
        after = rows[-1].id if rows else after
        if len(rows) < 500:
            break
    record = await store.record(OPERATIONS, operation.id)
    began = None if record is None else record.created_at
    traces = {*subject.traces, *await traces_of(store, subject.scope, quoted, began)}
    moved = _at(operation, "traces", after) if len(rows) == 500 else _at(operation, "tasks")
    found = replace(erasure_of(moved), traces=tuple(sorted(traces)))
    await store.apply(Commit(puts=[replace(moved, what=found).put()]))


async def _leave(store: Store, operation: Operation, why: str) -> float:
    """Leaves it for a while, and says in its note why it cannot go on; once, not each time that somebody looks."""
    logger.warning(
        "operation %s cannot go on: %s",
        operation.id,
        why,
        extra={"event": "operation.left", "operation_id": operation.id},
    )
    found = await store.record(OPERATIONS, operation.id)
    if found is not None and found.state == Status.RUNNING and found.body["note"] != why:
        await store.apply(Commit(puts=[replace(Operation.of(found), note=why).put()]))
    return LEFT_FOR_S


async def _erase_tasks(store: Store, operation: Operation, subject: Subject) -> float:
    """Erases tasks; those that wait or are failed are given up with it, since without what they carry they cannot
    run. Those of features that are not known here are left to workers that know them."""
    if subject.scope is not None:
        ids = await find_erasable(store, subject.scope, TASKS_PER_PIECE)
    else:
        ids = [] if subject.task_id is None or operation.last_piece else [subject.task_id]
    if not ids:
        await _erase_rest(store, operation, subject)
        return 0.0
    known = (await store.statuses(ids)).values()
    foreign = {
        one.id: one.feature
        for one in known
        if one.state in LIVE and one.feature not in (None, *store.features.reactions.names)
    }
    ids = [task_id for task_id in ids if task_id not in foreign]
    if not ids:
        names = ", ".join(sorted(set(filter(None, foreign.values()))))
        return await _leave(store, operation, f"it waits for a worker that knows {names}: {_named(foreign)}")
    live = [one.id for one in known if one.state in LIVE and one.state is not State.RUNNING and one.id not in foreign]
    moves = [Transition(task_id, Event.CANCEL, State.CANCELLED) for task_id in live]
    rows = [] if subject.scope is None else [row async for row in _rows(store, AuditFilter(task_ids=tuple(ids)))]
    found = [row for row in rows if row.erased is None and row.action not in SUMMARIES]
    erase = Erase(
        subject.tombstone, tuple(ids), callbacks=subject.scope, audit={row.id: content_digest(row) for row in found}
    )
    after = replace(operation, last_piece=len(ids))
    done = await _apply(
        store,
        Commit(transitions=moves, erase=erase),
        after,
        lambda applied: {"given_up": len(live) - len(applied.lost)},
        ids=ids_of(found),
    )
    stuck = [task_id for task_id in live if task_id in done.lost]
    if done.erased or (subject.task_id is not None and not stuck):
        return 0.0
    return await _leave(store, operation, CANNOT_END.format(_named(stuck)) if stuck else NOT_LET.format(_named(ids)))


async def _erase_rest(store: Store, operation: Operation, subject: Subject, before: int | None = None) -> None:
    """Erases what is found by the scope itself, also when of its tasks nothing is left. Rows of features may take
    several pieces; ``before``: how much was left when the last one began."""
    operation = replace(_at(operation, "audit", 0), note=None)
    if subject.scope is None:
        await store.apply(Commit(puts=[operation.put()]))
        return
    named, quoting = await holds_of(store, subject)
    lifted = [Hold(Target.GROUP, name, False, operation.actor) for name in named if not await keeps_others(store, name)]
    left = _quoting(await count_personal(store, subject.scope))
    if (not lifted and not quoting and not left) or (before is not None and left >= before):
        await store.apply(Commit(puts=[operation.put()]))
        return
    if left > FEATURE_ROWS_PER_PIECE:
        operation = _at(operation, "rest", left)
    erase = Erase(subject.tombstone, scope=subject.scope, holds=tuple(quoting), rows=FEATURE_ROWS_PER_PIECE)
    commit = Commit(controls=lifted, erase=erase)
    await _apply(store, commit, operation, lambda done: {"holds": done.erased.get("holds", 0) + len(lifted)})


async def _erase_audit(store: Store, operation: Operation, subject: Subject, after: int) -> None:
    which = EVERY_ROW if subject.task_id is None else AuditFilter(task_id=subject.task_id)
    found: list[AuditRow] = []
    for _ in range(PAGES_PER_STEP):
        rows = await store.audit(which, limit=500, after=after)
        found = [row for row in rows if subject.concerns(row)]
        after = rows[-1].id if rows else after
        if found or len(rows) < 500:
            break
    ended = not found and len(rows) < 500
    moved = _at(operation, "documents") if ended else _at(operation, "audit", after)
    if not found:
        await store.apply(Commit(puts=[moved.put()]))
        return
    telling = tuple(row.id for row in found if row.action in SUMMARIES)
    erase = Erase(subject.tombstone, audit={row.id: content_digest(row) for row in found}, telling=telling)
    await _apply(store, Commit(erase=erase), moved, ids=ids_of(found))


async def _clean_documents(store: Store, operation: Operation, subject: Subject) -> None:
    """Cleans plans, operations, approvals, notes and drills that quote it. What waits for a decision is withdrawn with
    it: nobody agrees to other words than were asked for. Its own operation comes last, with the end."""
    puts: dict[tuple[str, str], Put] = {}
    waited: set[str] = set()
    now = await store.now()
    if subject.scope is not None:
        async for found in _documents(store):
            if found.id == operation.id or not subject.quoted_in(found.body) or len(puts) >= TASKS_PER_PIECE:
                continue
            for record in [found, *await approvals.counterpart(store, found)]:
                body = subject.cleaned_document(record.body)
                put = Put(record.collection, record.id, body, record.version, record.state, record.left(now))
                puts[put.collection, put.id] = approvals.withdrawn_for(put, OUT_OF_DATE)
                if put.collection == approvals.COLLECTION and put.state == approvals.PENDING:
                    waited.add(put.id)
    following = _at(operation, "documents" if len(puts) >= TASKS_PER_PIECE else "archive")
    if not puts:
        await store.apply(Commit(puts=[following.put()]))
        return
    counts = {"documents": len(puts), "requests_withdrawn": len(waited)}
    await _apply(store, Commit(puts=list(puts.values())), following, lambda _: counts)


async def _erase_archive(store: Store, operation: Operation, subject: Subject, done: str) -> float:
    """Rewrites one piece of the archive after the other: the new one is written and told of in a sealed row; the old
    one is removed in a step of its own. Whoever goes on after a crash writes the same piece again, or removes it
    again."""
    archive = archive_at(erasure_of(operation).archive)
    if archive is None or not archive.exists:
        await store.apply(Commit(puts=[_at(operation, "end").put()]))
        return 0.0
    if await _prune_under_way(store):
        return 1.0  # it may be writing rows down that it read before they were erased
    names = [name for name in await asyncio.to_thread(archive.names) if name > done]
    for name in names[:PAGES_PER_STEP]:
        rows = await asyncio.to_thread(_matching, archive, name, subject)
        if rows is None:
            moved = _counting(_at(operation, "archive", name), {"unreadable": 1})
            await store.apply(Commit(puts=[moved.put()]))
            return 0.0
        if any(row.erased is None and subject.concerns(row) for row in rows):
            await _replace_piece(store, operation, subject, archive, name, rows)
            return 0.0
        done = name
    following = _at(operation, "archive", done) if names else _at(operation, "end")
    await store.apply(Commit(puts=[following.put()]))
    return 0.0


async def _replace_piece(
    store: Store, operation: Operation, subject: Subject, archive: Archive, name: str, rows: list[AuditRow]
) -> None:
    found = [row for row in rows if subject.concerns(row)]
    written = await asyncio.to_thread(archive.write, [emptied(row) if subject.concerns(row) else row for row in rows])
    following = _at(operation, "replaced", name)
    await _apply(
        store, Commit(), following, lambda _: {"archive": len(found)}, ids=ids_of(found), replaced={name: written.name}
    )


async def _remove_piece(store: Store, operation: Operation, name: str) -> None:
    archive = archive_at(erasure_of(operation).archive)
    assert archive is not None
    await asyncio.to_thread(archive.remove, name)
    await store.apply(Commit(puts=[_at(operation, "archive", name).put()]))


def _matching(archive: Archive, name: str, subject: Subject) -> list[AuditRow] | None:
    """Returns the rows of a piece that are meant; None when it cannot be read."""
    try:
        return archive.rows(name)
    except StoreError:
        return None


async def _sum_up(store: Store, operation: Operation, subject: Subject) -> None:
    """Counts what came or ran meanwhile. From here on nothing names whom it was about, not even this operation."""
    left = await count_personal(store, subject.scope, [] if subject.task_id is None else [subject.task_id])
    told = [f"{n} {place.replace('_', ' ')}" for place, n in left.items() if n]
    if pauses := await count_holds(store, subject):
        told.append(f"{pauses} pauses, of groups with tasks of others")
    if operation.erased.get("unreadable"):
        told.append(f"{operation.erased['unreadable']} pieces of the archive that cannot be read")
    note = NOT_COVERED if not told else f"left, because they came or ran meanwhile: {', '.join(told)}; erase again"
    which = operation.which if subject.scope is None else FailureFilter(scope=ERASED)
    nameless = replace(erasure_of(operation).at("files"), traces=())
    await store.apply(Commit(puts=[replace(operation, what=nameless, which=which, note=note).put()]))


async def _end(store: Store, operation: Operation) -> None:
    """Ends the operation, when the files are clean, too."""
    note = operation.note if await store.scrub() else f"{operation.note}; {STILL_IN_THE_LOG}"
    await store.apply(operation.ended(Status.COMPLETED, note))


# -- plumbing ----------------------------------------------------------------------------------------------------------


async def _apply(
    store: Store,
    commit: Commit,
    operation: Operation,
    more: Any = lambda _: {},
    ids: str = "",
    replaced: dict[str, str] | None = None,
) -> Applied:
    """Applies one piece, with how far the operation has come, and a sealed row that counts it."""

    def counted(applied: Applied) -> dict[str, int]:
        return {place: n for place, n in {**applied.erased, **more(applied)}.items() if n}

    def told(applied: Applied) -> list[Audit]:
        if not counted(applied):
            return []
        after = {"operation": operation.id, "counts": counted(applied), "ids": ids, "replaced": replaced or {}}
        return [Audit(operation.actor, ERASE_SUMMARY, None, None, operation.id, None, after)]

    def body(applied: Applied) -> dict[str, Any]:
        done, counts = operation.done + applied.erased.get("tasks", 0), counted(applied)
        note = None if counts else operation.note
        return replace(_counting(operation, counts), done=done, note=note).body()

    put = Put(OPERATIONS, operation.id, body, operation.version, operation.status.value)
    return await apply_sealed(store, replace(commit, puts=[*commit.puts, put], conclusion=told))


def _at(operation: Operation, phase: str, place: str | int = "") -> Operation:
    """Returns it at another phase, or further on in one."""
    return replace(operation, what=erasure_of(operation).at(phase, place))


def _counting(operation: Operation, more: dict[str, int]) -> Operation:
    """Returns it with so much more erased."""
    erased = dict(Counter(operation.erased) + Counter(more))
    return replace(operation, what=replace(erasure_of(operation), erased=erased))


def _subject(scope: str | None, task_id: UUID | None) -> Subject:
    if (scope is None) == (task_id is None):
        raise InvalidInput("say whose data is to be erased: one scope, or one task")
    if scope == ERASED or (scope or "").startswith(f"{ERASED}:"):
        raise InvalidInput(
            f"scope {scope} stands for data that is erased already", hint="name the scope that your tasks were given"
        )
    return Subject(check_text(scope, "scope"), task_id, "erased")


async def _documents(store: Store) -> AsyncIterator[Record]:
    for collection in QUOTING_COLLECTIONS:
        before = None
        while page := await store.records(collection, limit=200, before=before):
            for record in page:
                yield record
            before = page[-1].seq


def _concerns(subject: Subject, tasks: Container[UUID | None], row: AuditRow) -> bool:
    """Returns whether a row of the audit log goes: it is about the scope, or about a task that belongs to it."""
    about_task = row.task_id in tasks and row.erased is None and row.action not in SUMMARIES
    return about_task or subject.concerns(row)


async def _rows(store: Store, which: AuditFilter = EVERY_ROW) -> AsyncIterator[AuditRow]:
    after = 0
    while page := await store.audit(which, limit=500, after=after):
        for row in page:
            yield row
        after = page[-1].id


async def _prune_under_way(store: Store) -> bool:
    now = await store.now()
    found = await store.records(PRUNE_COLLECTION, states=("running",), limit=100)
    return any(now - record.updated_at < timedelta(seconds=PRUNE_LASTS_S) for record in found)
