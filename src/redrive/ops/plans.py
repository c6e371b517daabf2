"""Plans: a preview that binds what is done with it to the same tasks, by the same failures."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from redrive.errors import ChangedMeanwhile, PlanUnknown
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import facts, failures
from redrive.kernel.records import Put
from redrive.kernel.store import Store

COLLECTION = "plan"
KEPT = 24 * 3600.0
LISTED = 10_000  # so many tasks are listed in the plan itself; of larger ones only the boundary


@dataclass(slots=True, frozen=True)
class Plan:
    """``upto`` is the boundary: what failed later is not part of it. ``listed``: its tasks and the failures meant.
    ``letters``: also ``cancelled`` tasks are meant, by dead letters up to this one; in the list they have their places
    behind all that are failed."""

    token: str
    which: FailureFilter
    upto: int
    count: int
    listed: dict[UUID, int] | None
    letters: int = 0
    cancelled: int = 0
    matched: int = 0  # how many there were, whatever its limit

    def given_up(self, place: int) -> bool:
        """Returns whether this task is meant as a cancelled one."""
        return place > self.upto


async def make(
    store: Store, which: FailureFilter, actor: str, *, cancelled: bool = False, limit: int | None = None
) -> Plan:
    """Makes a plan. Who looks again within the hour, while nothing has changed, gets the same one. ``cancelled``: tasks
    that were given up are part of it. ``limit``: only so many, those that failed first."""
    upto, count = await store.failed_end(which)
    letters, given_up = await store.cancelled_end(which) if cancelled else (0, 0)
    matched = count = count + given_up
    token = _token(which, actor, upto, count, letters, limit, await store.now())
    if await store.record(COLLECTION, token) is not None:
        return await load(store, token)
    listed = None
    if count <= LISTED or limit is not None:
        most = min(LISTED, limit or LISTED)
        found = await store.failed_ids(which, limit=most, upto=upto)
        rest = most - len(found)
        behind = await store.cancelled(which, limit=rest, upto=letters) if letters and rest else []
        if limit is not None and matched > limit:  # its boundaries are those of what is listed
            upto = found[-1].failed_seq or 0 if found and not behind else upto
            letters, given_up = behind[-1].failed_seq or 0 if behind else 0, len(behind)
        listed = {one.id: one.failed_seq or 0 for one in found}
        listed |= {one.id: upto + (one.failed_seq or 0) for one in behind}
        count = len(listed)  # some may have left since
    body = {
        "which": facts(which),
        "upto": upto,
        "count": count,
        "actor": actor,
        "letters": letters,
        "cancelled": given_up,
        "matched": matched,
        "listed": None if listed is None else [[str(task_id), seq] for task_id, seq in listed.items()],
    }
    try:
        await store.apply(Commit(puts=[Put(COLLECTION, token, body, keep=KEPT)]))
    except ChangedMeanwhile:
        return await load(store, token)  # the same question, asked twice at once
    return Plan(token, which, upto, count, listed, letters, given_up, matched)


def _token(
    which: FailureFilter, actor: str, upto: int, count: int, letters: int, limit: int | None, now: datetime
) -> str:
    """Returns the name of a plan. It opens nothing by itself: whoever uses it has to be allowed to retry."""
    what = json.dumps([facts(which), actor, upto, count, letters, limit, now.strftime("%Y-%m-%dT%H")], sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(what.encode()).digest()[:18]).decode()


async def load(store: Store, token: str) -> Plan:
    record = await store.record(COLLECTION, token)
    if record is None or record.created_at + timedelta(seconds=KEPT) <= await store.now():
        raise PlanUnknown("there is no such plan", hint="a plan is kept for a day; make a new preview")
    body = record.body
    listed = body["listed"]
    return Plan(
        token,
        failures(body["which"]),
        body["upto"],
        body["count"],
        None if listed is None else {UUID(task_id): seq for task_id, seq in listed},
        body["letters"],
        body["cancelled"],
        body["matched"],
    )
