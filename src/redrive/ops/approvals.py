"""Approvals: a second person agrees to what cannot be taken back easily, or rejects it: operations, and actions of
features, which are carried out with the approval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from redrive.errors import ApprovalUnknown, ConfigError, InvalidTransition, NotAllowed
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.approved import ApprovedAction, Asked, Request
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Feature
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import Action, Operation, Status, facts
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_int, check_text
from redrive.kernel.wording import counted
from redrive.ops.actions import check_actor, check_states
from redrive.ops.allowance import PlannedAction
from redrive.ops.people import person

COLLECTION = "approval"
APPROVALS_PER_PIECE = 500
APPROVAL_VALID_FOR = timedelta(hours=24)
PENDING, APPROVED, REJECTED, EXPIRED, WITHDRAWN = "pending", "approved", "rejected", "expired", "withdrawn"
EVERYTHING_RETRIED = "everything is retried"
ERASED_FOR_GOOD = "personal data is removed for good"
APPROVAL_STATES = (PENDING, APPROVED, REJECTED, EXPIRED, WITHDRAWN)


def planned_action(operation: Operation) -> PlannedAction:
    """Returns an operation as the action that is judged. What a feature does is not counted in tasks."""
    if operation.work is not None:
        return PlannedAction(None, 0)
    return PlannedAction(operation.action, operation.total, _always(operation), operation.id or None)


def _always(operation: Operation) -> str | None:
    everything = operation.which.everything
    match operation.action:
        case Action.ERASE:
            return ERASED_FOR_GOOD
        case Action.PURGE:
            return "waiting tasks are given up"
        case Action.FORGET if everything:
            return "all failures are given up"
        case Action.RETRY if everything:
            return EVERYTHING_RETRIED
    return None


async def ask(store: Store, operation: Operation, why: str) -> tuple[Operation, Record | None]:
    """Writes the operation down and the request for its approval; it waits until somebody decides."""
    approval_id = str(new_id())
    waiting = replace(operation, status=Status.WAITING, approval=approval_id)
    body = {
        "operation": operation.id,
        "action": operation.action.value,
        "filter": facts(operation.which),
        "total": operation.total,
        "needed": _needed(operation, why),
        "requested_by": operation.actor,
        "reason": operation.reason,
        "fixed": operation.fixed,
        "idempotent": operation.idempotent,
        "decided_by": None,
        "decision": None,
    }
    row = Audit(
        operation.actor,
        "APPROVAL_REQUEST",
        operation.reason,
        None,
        operation.id,
        None,
        {**body, "filter": operation.subject, "needed": why},
        target=f"approval:{approval_id}",
    )
    await store.apply(Commit(puts=[waiting.put(), Put(COLLECTION, approval_id, body, state=PENDING)], audits=[row]))
    return replace(waiting, version=1), await store.record(COLLECTION, approval_id)


def _needed(operation: Operation, why: str) -> str:
    """Returns what an approver needs to see of an erasure: whose data it is about. It is erased from here, too, and is
    no part of the audit log."""
    if operation.action is not Action.ERASE:
        return why
    return f"{why}: " + ", ".join(f"{name} {value}" for name, value in facts(operation.which).items())


async def list_approvals(
    store: Store, *, states: tuple[str, ...] = (), limit: int = 50, before: int | None = None
) -> list[Record]:
    check_int(limit, "limit", 1, 500)
    check_states(states, APPROVAL_STATES)
    return await store.records(COLLECTION, states=states, limit=limit, before=before)


def title(record: Record) -> str:
    """Returns what is asked for in a few words: "retry 5 tasks"."""
    return str(record.body.get("title") or f"{record.body['action']} {counted(record.body['total'])}")


async def show(store: Store, approval_id: str) -> Record:
    record = await store.record(COLLECTION, approval_id)
    if record is None:
        raise ApprovalUnknown(f"there is no approval {approval_id!r}", hint="redrive approvals lists them")
    return record


async def approve(store: Store, approval_id: str, *, actor: str, reason: str | None = None) -> Record:
    """Approves, by somebody else than who asked; the operation begins with it. An action of a feature is approved by
    ``carry_out``."""
    return await _decide(store, approval_id, actor, reason, APPROVED)


async def reject(store: Store, approval_id: str, *, actor: str, reason: str | None = None) -> Record:
    return await _decide(store, approval_id, actor, reason, REJECTED)


async def expire(store: Store) -> int:
    """Closes requests that nobody decided in time, with their operations."""
    now, closed, before = await store.now(), 0, None
    # All of them: the latest come first, and only the first ones are late.
    while page := await store.records(COLLECTION, states=(PENDING,), limit=APPROVALS_PER_PIECE, before=before):
        before = page[-1].seq
        for record in page:
            if expired(record, now):
                await store.apply(await _closed(store, record, "redrive", "nobody decided in time", EXPIRED))
                closed += 1
    return closed


def expires_at(record: Record) -> datetime:
    return record.created_at + APPROVAL_VALID_FOR


def expired(record: Record, now: datetime) -> bool:
    return record.state == PENDING and expires_at(record) <= now


def is_requester(record: Record, who: str) -> bool:
    """Returns whether somebody asked for it, and so cannot approve it. Names are compared as people read them: "Ann" is
    "ann"."""
    return person(who) == person(record.body["requested_by"])


async def withdrawn(store: Store, operation: Operation) -> list[Put]:
    """Returns what to write when an operation that waits is cancelled."""
    if operation.approval is None or operation.status is not Status.WAITING:
        return []
    record = await show(store, operation.approval)
    return [Put(COLLECTION, record.id, record.body, record.version, WITHDRAWN)]


async def counterpart(store: Store, record: Record) -> list[Record]:
    """Returns the operation that waits for a request, or the request that an operation waits for."""
    name, collection = {COLLECTION: ("operation", OPERATIONS), OPERATIONS: ("approval", COLLECTION)}.get(
        record.collection, ("", "")
    )
    other = record.body.get(name) if record.state in (PENDING, Status.WAITING) else None
    found = None if other is None else await store.record(collection, other)
    return [found] if found is not None and found.state in (PENDING, Status.WAITING) else []


def withdrawn_for(put: Put, why: str) -> Put:
    """Returns what ends a request, or an operation, that waits for a decision; anything else as it is."""
    body = {**put.body} if isinstance(put.body, Mapping) else {}
    if put.collection == COLLECTION and put.state == PENDING:
        body |= {"decided_by": "redrive", "decision": WITHDRAWN, "decision_reason": why}
        return replace(put, state=WITHDRAWN, body=body)
    if put.collection == OPERATIONS and put.state == Status.WAITING:
        return replace(put, state=Status.CANCELLED.value, body={**body, "note": why})
    return put


async def _decide(store: Store, approval_id: str, actor: str, reason: str | None, decision: str) -> Record:
    record = await show(store, approval_id)
    if decision == APPROVED and record.body["operation"] is None:
        raise InvalidTransition(
            f"approval {approval_id} is about an action of {record.body['feature']}, not carried out"
        )
    await store.apply(await deciding(store, record, actor, reason, decision))
    return await show(store, approval_id)


async def deciding(store: Store, record: Record, actor: str, reason: str | None, decision: str) -> Commit:
    """Returns what closes a request that may be decided so by this person, and begins or ends its operation."""
    who, why = check_actor(actor), check_text(reason, "reason")
    if record.state != PENDING:
        raise InvalidTransition(f"approval {record.id} is {record.state}", hint="only pending ones can be decided")
    if expired(record, await store.now()):
        raise InvalidTransition(f"approval {record.id} has expired", hint="ask for it again")
    if decision == APPROVED and is_requester(record, who):
        raise NotAllowed(f"{who} asked for it, and cannot approve it", hint="somebody else has to")
    return await _closed(store, record, who, why, decision)


async def _closed(store: Store, record: Record, who: str, why: str | None, decision: str) -> Commit:
    operation = record.body["operation"]
    body = {**record.body, "decided_by": who, "decision": decision, "decision_reason": why}
    name = {APPROVED: "APPROVAL_APPROVE", REJECTED: "APPROVAL_REJECT"}.get(decision, "APPROVAL_EXPIRE")
    before, after, target = {"state": record.state}, {"state": decision}, f"approval:{record.id}"
    said = Audit(who, name, why, None, operation, before, after, target=target, scope=record.body.get("scope"))
    decided = Commit(puts=[Put(COLLECTION, record.id, body, record.version, decision)], audits=[said])
    found = None if operation is None else await store.record(OPERATIONS, operation)
    if found is None or found.state != Status.WAITING:
        return decided
    turned = _turned(Operation.of(found), who, why, decision)
    return Commit(puts=[*decided.puts, *turned.puts], audits=[*decided.audits, *turned.audits])


def _turned(operation: Operation, who: str, why: str | None, decision: str) -> Commit:
    """Returns what begins an operation that was approved, or ends one that was not."""
    if decision != APPROVED:
        name = "OPERATION_REJECT" if decision == REJECTED else "OPERATION_EXPIRE"
        return operation.called_off(who, name, why, f"{decision} by {who}" + (f": {why}" if why else ""))
    row = Audit(
        operation.actor,
        "OPERATION_START",
        operation.reason,
        None,
        operation.id,
        {"status": operation.status.value},
        {"status": Status.RUNNING.value, "approved_by": who, **operation.answers},
        target=f"operation:{operation.id}",
    )
    return Commit(puts=[replace(operation, status=Status.RUNNING).put()], audits=[row])


# -- actions of features -----------------------------------------------------------------------------------------------


MOST_PENDING = 500


async def ask_for(store: Store, who: str, request: Request, reason: str | None, why: str) -> Record:
    """Writes down what is asked for; it waits until somebody decides. Asked for twice, it is one request."""
    told = check_text(reason, "reason")
    for record in await list_approvals(store, states=(PENDING,), limit=MOST_PENDING):
        if _same(record, request):
            return record
    approval_id = str(new_id())
    body = {
        "operation": None,
        "action": f"{request.feature}.{request.action}",
        "feature": request.feature,
        "arguments": dict(request.arguments),
        "title": request.title,
        "told": request.told,
        "page": request.page,
        "scope": request.scope,
        "filter": {},
        "total": request.number,
        "needed": why,
        "requested_by": who,
        "reason": told,
        "decided_by": None,
        "decision": None,
    }
    row = Audit(who, "APPROVAL_REQUEST", told, after=body, target=f"approval:{approval_id}", scope=request.scope)
    await store.apply(Commit(puts=[Put(COLLECTION, approval_id, body, state=PENDING)], audits=[row]))
    return await show(store, approval_id)


async def carry_out(
    store: Store, features: Iterable[Feature], who: str, session: object, record: Record, reason: str | None
) -> Record:
    """Does what was asked for, as agreed to by this person with their session: it and the decision land together, or
    neither."""
    body = record.body
    action = _action(features, body["action"])
    decision = await deciding(store, record, who, reason, APPROVED)

    async def land(commit: Commit) -> Applied:
        puts, audits = [*commit.puts, *decision.puts], [*decision.audits, *commit.audits]
        return await store.apply(replace(commit, puts=puts, audits=audits))

    await action.carry_out(session, Asked(body["arguments"], body["requested_by"], body["reason"]), land)
    return await show(store, record.id)


def _same(record: Record, request: Request) -> bool:
    named = f"{request.feature}.{request.action}"
    return bool(record.body["action"] == named and record.body["arguments"] == dict(request.arguments))


def _action(features: Iterable[Feature], named: str) -> ApprovedAction:
    for feature in features:
        for action in feature.approved:
            if f"{feature.name}.{action.name}" == named:
                return action
    raise ConfigError(
        f"nothing here knows how to {named!r}", hint="approve it where the application has that feature: --app"
    )
