"""What one worker of the fleet does for webhooks every so often: disables endpoints that have failed for days."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.duty import Duty
from redrive.kernel.reactions import Rows
from redrive.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

LOOK_EVERY_S = 300.0


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
