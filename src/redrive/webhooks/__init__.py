"""Webhooks: signed events to customers' endpoints, each delivery a task with all that tasks have.

``app.webhooks.send(…)`` sends an application's own events; other features enqueue ``event_task(…)`` among the effects
of a settlement.
"""

from redrive.kernel.feature import Feature
from redrive.webhooks.alerts import ALERTS
from redrive.webhooks.doctor import dependencies, examine
from redrive.webhooks.duties import duties
from redrive.webhooks.event_handler import event_task
from redrive.webhooks.kinds import kinds
from redrive.webhooks.reaction import belongs, react
from redrive.webhooks.settings import WebhookSettings, retention

WEBHOOKS = Feature(
    "webhooks",
    __name__,
    react=react,
    duties=duties,
    kinds=kinds,
    services={"webhooks": "redrive.webhooks.application:Webhooks"},
    routes="redrive.webhooks.routes:router",
    commands="redrive.webhooks.commands:cli",
    pages="redrive.webhooks.pages:pages",
    settings=WebhookSettings,
    retention=retention,
    examine=examine,
    dependencies=dependencies,
    alerts=ALERTS,
    belongs=belongs,
    reserved_kinds=("WEBHOOK_EVENT", "WEBHOOK_DELIVERY"),
    metrics="redrive.webhooks.metrics:metrics",
    about="Webhooks: customers' endpoints, their secrets, deliveries, and sending events.",
)
__all__ = ["WEBHOOKS", "event_task"]
