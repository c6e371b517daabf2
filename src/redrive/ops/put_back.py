"""Finds the tasks that a purge gave up, so that they can be retried together: no filter finds what never failed."""

from __future__ import annotations

from uuid import UUID

from redrive.errors import InvalidTransition
from redrive.kernel.audit import AuditFilter
from redrive.kernel.operation import FINAL, OF_WAITING, Operation
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Record
from redrive.kernel.task import State

MOST_PUT_BACK = 1000  # are listed at a time; those that are left are found by asking again


def can_put_back(operation: Operation) -> bool:
    return operation.action in OF_WAITING and operation.status in FINAL and bool(operation.done)


async def given_up_by(store: Store, record: Record) -> list[UUID]:
    """Returns tasks that are cancelled by this purge. What ended later, was retried since, and given up anew."""
    operation = Operation.of(record)
    if not can_put_back(operation):
        raise InvalidTransition(
            f"operation {operation.id} is a {operation.action}, is {operation.status}, and has {operation.done} done",
            hint="what a purge or cancel gave up can be put back when it is over; failures are retried by a filter",
        )
    items = AuditFilter(bulk_id=operation.id, action=f"{operation.action.audited}_ITEM")
    found, before = list[UUID](), None
    while len(found) < MOST_PUT_BACK:
        rows = await store.audit(items, limit=MOST_PUT_BACK, before=before, documents=0)
        tasks = await store.get_many([row.task_id for row in rows if row.task_id is not None], documents=0)
        found += [
            task.id
            for task in tasks.values()
            if task.state is State.CANCELLED and task.finished_at is not None and task.finished_at <= record.updated_at
        ]
        if len(rows) < MOST_PUT_BACK:
            break
        before = rows[-1].id
    if not found:
        raise InvalidTransition(
            f"nothing that operation {operation.id} gave up is cancelled any more", hint="or history has left it"
        )
    return found[:MOST_PUT_BACK]
