"""Webhooks: signed events to customers' endpoints, each delivery a task with all that tasks have.

``app.webhooks.send(…)`` sends an application's own events; other features enqueue ``event_task(…)`` among the effects
of a settlement.
"""

from redrive.kernel.alerts.own import AlertRule
from redrive.kernel.diagnosis import Level
from redrive.kernel.feature import Feature
from redrive.webhooks.delivery_tasks import belongs, event_task, kinds, react
from redrive.webhooks.doctor import dependencies, duties, examine
from redrive.webhooks.settings import WebhookSettings, retention

ALERTS = (
    AlertRule(
        "webhooks_no_client",
        "webhook endpoints that nobody can deliver to: httpx is not installed",
        level=Level.CRITICAL,
        fix="pip install '/path/to/checkout[http]' where workers run",
    ),
    AlertRule(
        "webhooks_unsigned",
        "webhook endpoints without a secret: nothing can be signed for them",
        level=Level.CRITICAL,
        fix="redrive doctor names them; redrive webhooks rotate ENDPOINT",
    ),
    AlertRule(
        "webhooks_failing",
        "webhook endpoints that have only failed for a while",
        hold=300,
        fix="redrive doctor names them; redrive webhooks deliveries shows what they answered",
    ),
    AlertRule(
        "webhooks_disabled",
        "webhook endpoints that were disabled because they failed for days or are gone",
        fix="redrive doctor names them; tell the customer, then enable or remove them",
    ),
)

WEBHOOKS = Feature(
    "webhooks",
    __name__,
    react=react,
    duties=duties,
    kinds=kinds,
    services={"webhooks": "redrive.webhooks.application:Webhooks"},
    routes="redrive.webhooks.routes:routers",
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
