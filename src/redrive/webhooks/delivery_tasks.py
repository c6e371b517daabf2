"""The tasks that carry an event to endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from redrive.kernel.commit import Commit
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask
from redrive.webhooks.delivery_handler import deliver
from redrive.webhooks.events import FEATURE, Event


def delivery(
    event: Event,
    endpoint: str,
    attempts: int,
    *,
    round: int = 0,
    trace_id: str | None = None,
    forced: bool = False,
) -> NewTask:
    """Returns the task that carries an event to an endpoint; asked for twice, it is enqueued once. ``forced``: also
    where the endpoint is disabled."""
    return deliver.options(
        max_attempts=attempts,
        scope=event.account,
        group=f"webhook:{endpoint}",
        trace_id=trace_id,
        idempotency_key=f"redrive:webhook:{event.id}:{endpoint}:{round}",
        feature=FEATURE,
        facts={"endpoint": endpoint, "event": event.id, "type": event.type},
    ).new(
        endpoint_id=endpoint,
        event_id=event.id,
        event_type=event.type,
        data=event.data,
        at=event.at,
        forced=forced,
    )


def deliveries(
    event: Event, endpoints: Iterable[str], attempts: int, *, round: int = 0, trace_id: str | None = None
) -> Commit:
    """Returns one delivery for each endpoint, to be applied together or not at all."""
    made = [(one, delivery(event, one, attempts, round=round, trace_id=trace_id)) for one in endpoints]
    return Commit(
        enqueues=[task for _, task in made], rows=[made_rows(event, made, round)] if made else [], all_or_none=True
    )


def made_rows(event: Event, made: Iterable[tuple[str, NewTask]], round: int) -> Rows:
    """Returns the rows by which deliveries are found."""
    shared = {"account": event.account, "event": event.id, "type": event.type, "round": round}
    return Rows(FEATURE, "deliveries_made", tuple({"task": str(t.id), "endpoint": one, **shared} for one, t in made))
