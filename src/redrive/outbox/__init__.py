"""The outbox: changes of an application's entities, written in its own transactions and projected to sinks in bulk.

An event is a task of a bulk kind, a projection is a queue with a sink behind it: leases, retries, causes, replays and
figures are those of tasks. Every process loads this module; what it names by text is loaded by whoever needs it.
"""

from typing import Any

from redrive.kernel.feature import Feature
from redrive.outbox.application import declare
from redrive.outbox.health import ALERTS, dependencies, examine
from redrive.outbox.settings import OutboxSettings, retention

OUTBOX = Feature(
    "outbox",
    __name__,
    declare=declare,
    services={"outbox": "redrive.outbox.application:Outbox"},
    routes="redrive.outbox.routes:router",
    commands="redrive.outbox.commands:cli",
    pages="redrive.outbox.pages:pages",
    settings=OutboxSettings,
    retention=retention,
    examine=examine,
    alerts=ALERTS,
    dependencies=dependencies,
    metrics="redrive.outbox.metrics:metrics",
    about="A search index that follows the database: projections, their events and sinks.",
    # Its tasks carry no feature's name: nothing reacts to their ends, and they settle the short way.
    tasks=False,
)
__all__ = ["OUTBOX", "publish"]


def publish(connection: Any, projection: str, *event: Any, **more: Any) -> Any:
    """Publishes an event in the caller's transaction: see ``redrive.outbox.publish_event``, which is imported by those
    who publish."""
    from redrive.outbox.publish_event import publish as publish_event

    return publish_event(connection, projection, *event, **more)
