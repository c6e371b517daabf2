"""Endpoints as people see them: listed, shown with their secrets' dates, and how many need somebody."""

from __future__ import annotations

import builtins
import json
from typing import Any

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.microseconds import to_datetime
from redrive.ops.access import Role
from redrive.ops.operator.session import Service
from redrive.webhooks.documents import endpoint_view
from redrive.webhooks.events import FEATURE
from redrive.webhooks.settings import WebhookSettings

MOST_AT_ONCE = 500
STATES = ("enabled", "disabled")


class EndpointUnknown(NotFound):
    code = "WEBHOOK_ENDPOINT_UNKNOWN"


class EndpointReads(Service):
    """What can be asked about endpoints."""

    async def list(
        self,
        account: str | None = None,
        state: str | None = None,
        *,
        direct: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> dict[str, Any]:
        """A page of endpoints, by account; ``next`` continues it. ``direct``: those of calls that named a URL."""
        self._session.may(Role.VIEWER)
        if state is not None and state not in STATES:
            raise InvalidInput(f"{state!r} is no state of an endpoint", hint="enabled or disabled")
        limit = max(1, min(limit, MOST_AT_ONCE))
        place = (None, None) if after is None else self._place(after)
        rows = await self._rows("endpoints", account, state, *place, direct, limit + 1)
        found = [endpoint_view(row, whole=self._whole) for row in rows[:limit]]
        more = len(rows) > limit
        return {
            "items": found,
            "next": json.dumps([rows[limit - 1]["account"], rows[limit - 1]["id"]]) if more else None,
        }

    async def show(self, endpoint: str) -> dict[str, Any]:
        """One endpoint, with when its secrets were made and until when they are valid; never the secrets."""
        self._session.may(Role.VIEWER)
        row = await self._row(endpoint)
        owners = [str(one["owner"]) for one in await self._rows("signers", endpoint, row["account"])]
        owner = next((kind for kind in ("endpoint", "account") if any(one.startswith(kind) for one in owners)), None)
        named = row["id"] if owner == "endpoint" else row["account"]
        dated = [] if owner is None else await self._rows("secrets", f"{owner}:{named}")
        shown = [
            {**one, "created_at": to_datetime(one["created_at"]), "expires_at": to_datetime(one["expires_at"])}
            for one in dated
        ]
        signed_by = owner or ("settings" if self._own.secret else None)
        return {**endpoint_view(row, whole=self._whole), "signed_by": signed_by, "secrets": shown}

    async def troubled(self) -> int:
        """Returns how many endpoints need somebody: enabled ones that only fail, and those that redrive disabled."""
        self._session.may(Role.VIEWER)
        rows = await self._rows("endpoint_numbers")
        failing = sum(row["failing"] for row in rows if row["state"] == "enabled")
        return int(failing) + len(await self._rows("given_up"))

    @property
    def _own(self) -> WebhookSettings:
        return self._session.settings.of(WebhookSettings)

    @property
    def _whole(self) -> bool:
        return self._session.caller.role >= Role.OPERATOR

    async def _rows(self, statement: str, *args: Any) -> builtins.list[dict[str, Any]]:
        return await self._store.sql.feature_rows(FEATURE, statement, *args)

    async def _row(self, endpoint: str) -> dict[str, Any]:
        rows = await self._rows("endpoint", endpoint)
        if not rows:
            raise EndpointUnknown(
                f"there is no webhook endpoint {endpoint!r}", hint="redrive webhooks endpoints lists them"
            )
        return rows[0]

    @staticmethod
    def _place(after: str) -> tuple[str, str]:
        try:
            account, endpoint = json.loads(after)
        except (ValueError, TypeError):
            raise InvalidInput("after is no place in a list of endpoints", hint="give what next said") from None
        return str(account), str(endpoint)
