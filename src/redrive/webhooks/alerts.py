"""What somebody is told about webhooks without asking."""

from __future__ import annotations

from redrive.kernel.alerts.brought import AlertRule
from redrive.kernel.diagnosis import Level

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
