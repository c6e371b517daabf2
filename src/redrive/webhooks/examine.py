"""Endpoints that fail: told by doctor and by alerts, and after days of nothing else disabled."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redrive.kernel.alerts.brought import AlertRule
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.duty import Duty
from redrive.kernel.reactions import Rows
from redrive.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

LOOK_EVERY_S = 300.0


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong with endpoints: those that only fail, were given up, or cannot be signed for."""
    own = settings.of(WebhookSettings)
    found = [_failing(row) for row in await store.feature_rows("webhooks", "failing", own.failing_hours * 3600)]
    found += [_given_up(row) for row in await store.feature_rows("webhooks", "given_up")]
    if own.secret is None:
        found += [_unsigned(row) for row in await store.feature_rows("webhooks", "unsigned")]
    if find_spec("httpx") is None and await store.feature_rows("webhooks", "endpoint_numbers"):
        fix = "pip install '/path/to/checkout[http]'"
        found.append(
            Finding(Level.CRITICAL, "webhooks_no_client", "there are endpoints, and httpx is not installed", fix)
        )
    return found


def _failing(row: Any) -> Finding:
    text = f"webhook endpoint {row['id']} of {row['account']} has only failed for a while"
    return _about(row, Level.WARNING, "webhooks_failing", text, f"redrive webhooks deliveries {row['id']}")


def _given_up(row: Any) -> Finding:
    text = f"webhook endpoint {row['id']} of {row['account']} was disabled: {row['disabled_reason']}"
    fix = f"redrive webhooks enable {row['id']}, or remove it; redrive webhooks disable {row['id']} takes note of it"
    return _about(row, Level.WARNING, "webhooks_disabled", text, fix)


def _unsigned(row: Any) -> Finding:
    text = f"webhook endpoint {row['id']} of {row['account']} has no secret: nothing can be sent to it"
    return _about(row, Level.CRITICAL, "webhooks_unsigned", text, f"redrive webhooks rotate {row['id']}")


def _about(row: Any, level: Level, code: str, text: str, fix: str) -> Finding:
    return Finding(level, code, text, fix, ("page", f"/webhooks/endpoints/{row['id']}"))


async def disable_failing(store: Store, days: float) -> list[str]:
    """Disables endpoints that have done nothing but fail for so many days, and returns them."""
    rows = await store.feature_rows("webhooks", "failing", days * 86_400)
    why = f"it has only failed for {days:g} days"
    if rows:
        off = tuple({"id": row["id"], "by": "redrive", "reason": why} for row in rows)
        audits = [
            Audit("redrive", "WEBHOOK_ENDPOINT_DISABLED", why, target=f"webhook:{row['id']}", scope=row["account"])
            for row in rows
        ]
        await store.apply(Commit(rows=[Rows("webhooks", "endpoint_disabled", off)], audits=audits))
    return [row["id"] for row in rows]


def duties(settings: Settings) -> list[Duty]:
    days = settings.of(WebhookSettings).disable_days

    async def disable(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        while len(await disable_failing(store, days)) == 100 and not stopping():
            pass

    return [Duty("webhooks:disable", LOOK_EVERY_S, disable)] if days else []


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
