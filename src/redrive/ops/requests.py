"""Actions of features that wait for a second operator: asked for, and carried out with the approval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redrive.errors import ConfigError
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.approved import ApprovedAction, Asked, Request
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_text
from redrive.ops.approvals import APPROVED, COLLECTION, PENDING, deciding, list_approvals, show

MOST_PENDING = 500


async def ask(store: Store, who: str, request: Request, reason: str | None, why: str) -> Record:
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
