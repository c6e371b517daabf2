"""A plan binds a preview to what is done with it: the same tasks, by the same failures, and nothing else."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from redrive.errors import PlanUnknown
from redrive.kernel.commit import Commit
from redrive.kernel.failed import Failures
from redrive.kernel.operation import facts, failures
from redrive.kernel.records import Put
from redrive.kernel.store import Store

COLLECTION = "plan"
KEPT = 24 * 3600.0
LISTED = 10_000  # so many tasks are listed in the plan itself; of larger ones only the boundary


@dataclass(slots=True, frozen=True)
class Plan:
    """``upto`` is the boundary: what failed later is not part of it. ``listed``: its tasks and the failures meant."""

    token: str
    which: Failures
    upto: int
    count: int
    listed: dict[UUID, int] | None


async def make(store: Store, which: Failures, actor: str) -> Plan:
    upto, count = await store.failed_end(which)
    listed = None
    if count <= LISTED:
        listed = dict(await store.failed_ids(which, limit=LISTED, upto=upto))
        count = len(listed)  # some may have left since
    plan = Plan(secrets.token_urlsafe(18), which, upto, count, listed)
    body = {
        "which": facts(which), "upto": upto, "count": count, "actor": actor,
        "listed": None if listed is None else [[str(task_id), seq] for task_id, seq in listed.items()],
    }  # fmt: skip
    await store.apply(Commit(puts=[Put(COLLECTION, plan.token, body, keep=KEPT)]))
    return plan


async def load(store: Store, token: str) -> Plan:
    record = await store.record(COLLECTION, token)
    if record is None or record.created_at + timedelta(seconds=KEPT) <= await store.now():
        raise PlanUnknown("there is no such plan", hint="a plan is kept for a day; make a new preview")
    body = record.body
    listed = body["listed"]
    return Plan(
        token, failures(body["which"]), body["upto"], body["count"],
        None if listed is None else {UUID(task_id): seq for task_id, seq in listed},
    )  # fmt: skip
