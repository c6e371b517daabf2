"""What is wrong with endpoints and their secrets, for doctor and ``/readyz``; and the duty that disables those which
have failed for days."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Dependency, Finding, Level
from redrive.kernel.duty import Duty
from redrive.kernel.reactions import Rows
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import NO_KEY

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings
LOOK_EVERY_S = 300.0


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong with endpoints: those that only fail, were given up, or cannot be signed for."""
    own = settings.of(WebhookSettings)
    found = [_failing(row) for row in await store.sql.feature_rows("webhooks", "failing", own.failing_hours * 3600)]
    found += [_given_up(row) for row in await store.sql.feature_rows("webhooks", "given_up")]
    if own.secret is None:
        found += [_unsigned(row) for row in await store.sql.feature_rows("webhooks", "unsigned")]
    if find_spec("httpx") is None and await store.sql.feature_rows("webhooks", "endpoint_numbers"):
        fix = "pip install '/path/to/checkout[http]'"
        found.append(
            Finding(Level.CRITICAL, "webhooks_no_client", "there are endpoints, and httpx is not installed", fix)
        )
    if own.secret_keys and (await _stored(store))["clear"]:
        text = "WEBHOOKS_SECRET_KEYS is set, and there are secrets of webhooks that are not encrypted"
        found.append(Finding(Level.WARNING, "webhooks_clear_secrets", text, "redrive webhooks encrypt"))
    return found


async def dependencies(store: Store, settings: Settings) -> list[Dependency]:
    """Returns whether this process could sign, where secrets are encrypted. One that cannot leaves deliveries to
    others, and does the rest of its work."""
    if settings.of(WebhookSettings).secret_keys or not (await _stored(store))["sealed"]:
        return []
    return [Dependency("key of webhooks", False, f"{NO_KEY}: WEBHOOKS_SECRET_KEYS", blocks=False)]


async def _stored(store: Store) -> Any:
    """Returns whether there are secrets that are encrypted, and such that are not."""
    [row] = await store.sql.feature_rows("webhooks", "secret_forms")
    return row


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
    rows = await store.sql.feature_rows("webhooks", "failing", days * 86_400)
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
