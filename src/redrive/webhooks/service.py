"""Endpoints: listed, shown, added, changed, enabled, disabled, removed, and their secrets. What a caller may do is
checked here, for every face; each change lands with its audit row."""

from __future__ import annotations

import builtins
import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

from redrive.errors import Conflict, InvalidInput, NotFound
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.reactions import Rows
from redrive.ops.access import Role
from redrive.ops.operator.session import Service
from redrive.webhooks.address_guard import check_url
from redrive.webhooks.documents import endpoint_view, origin
from redrive.webhooks.events import FEATURE, MOST_ENDPOINTS, check_account, check_events
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import check_secret, decrypt, encrypt, is_current, new_secret, shown_secret
from redrive.webhooks.url_check import judge_url

MOST_AT_ONCE = 500
MOST_DESCRIPTION = 500
SECRETS_AT_ONCE = 200
STATES = ("enabled", "disabled")


class EndpointUnknown(NotFound):
    code = "WEBHOOK_ENDPOINT_UNKNOWN"


class Endpoints(Service):
    """``operator.of(Endpoints)``."""

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

    async def add(
        self,
        account: str,
        url: str,
        events: Sequence[str] = (),
        description: str | None = None,
        *,
        secret: str | None = None,
        shared: bool = False,
        once: str | None = None,
    ) -> dict[str, Any]:
        """Add an endpoint. Its secret is made here unless one is given, and shown this once. ``shared``: it has none of
        its own, and is signed for with that of its account or of the settings. Asked again by the same ``once`` it is
        refused: what the first call returned cannot be returned again."""
        who = self._session.may(Role.OPERATOR)
        check_account(account)
        check_url(url, https_only=self._own.https_only)
        wanted = check_events(events)
        await judge_url(url, self._own)
        if len(await self._rows("targets", account)) >= MOST_ENDPOINTS:
            raise Conflict(f"the account {account!r} has {MOST_ENDPOINTS:,} endpoints, and takes no more")
        if shared and secret is not None:
            raise InvalidInput("give a secret, or say that it shares that of its account, not both")
        if shared:
            await self._insist_on_shared(account)
        name = await self._new_name(once)
        row = {
            "id": name,
            "account": account,
            "url": url,
            "events": json.dumps(wanted),
            "description": _described(description),
        }
        key = None if shared else check_secret(secret) if secret is not None else new_secret()
        said = self._audit(who, "ADDED", name, account, after={"url": origin(url), "events": wanted})
        rows = [
            Rows(FEATURE, "endpoint_added", (row,)),
            *([] if key is None else [self._stored(f"endpoint:{name}", key)]),
        ]
        await self._store.apply(Commit(rows=rows, audits=[said]))
        return {**await self.show(name), "secret": None if key is None else shown_secret(key)}

    async def edit(
        self,
        endpoint: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        description: str | None = None,
    ) -> dict[str, Any]:
        """Change what is given; the rest stays. An empty description removes it."""
        who = self._session.may(Role.OPERATOR)
        row = await self._row(endpoint)
        if url is not None:
            check_url(url, https_only=self._own.https_only)
            await judge_url(url, self._own)
        wanted = json.loads(row["events"]) if events is None else check_events(events)
        described = row["description"] if description is None else _described(description)
        target: str = url or row["url"]
        new = {"id": endpoint, "url": target, "events": json.dumps(wanted), "description": described}
        before = {"url": origin(row["url"]), "events": json.loads(row["events"])}
        after = {"url": origin(target), "events": wanted}
        said = self._audit(who, "CHANGED", endpoint, row["account"], before=before, after=after)
        await self._store.apply(Commit(rows=[Rows(FEATURE, "endpoint_changed", (new,))], audits=[said]))
        return await self.show(endpoint)

    async def rotate(
        self, endpoint: str, *, secret: str | None = None, overlap_hours: float | None = None
    ) -> dict[str, Any]:
        """Give an endpoint a new secret, shown this once. The old ones are valid for so many hours more, in which each
        request carries a signature by both."""
        row = await self._row(endpoint)
        return {
            **await self._rotate(f"endpoint:{endpoint}", row["account"], secret, overlap_hours),
            "endpoint": endpoint,
        }

    async def rotate_account(
        self, account: str, *, secret: str | None = None, overlap_hours: float | None = None
    ) -> dict[str, Any]:
        """Give an account a new secret, with which its endpoints without one of their own are signed for."""
        return await self._rotate(f"account:{check_account(account)}", account, secret, overlap_hours)

    async def _rotate(self, owner: str, account: str, secret: str | None, overlap: float | None) -> dict[str, Any]:
        who = self._session.may(Role.OPERATOR)
        key = new_secret() if secret is None else check_secret(secret)
        hours = self._own.rotation_hours if overlap is None else overlap
        if not 0 <= hours <= 8760:
            raise InvalidInput("secrets overlap for 0 to 8760 hours")
        named = owner.removeprefix("endpoint:") if owner.startswith("endpoint:") else owner
        said = self._audit(who, "SECRET_ROTATED", named, account, after={"overlap_hours": hours}, kind="WEBHOOK")
        expire = Rows(FEATURE, "secrets_expire", ({"owner": owner, "seconds": hours * 3600},))
        await self._store.apply(Commit(rows=[expire, self._stored(owner, key)], audits=[said]))
        return {"account": account, "secret": shown_secret(key), "overlap_hours": hours}

    def _stored(self, owner: str, key: str) -> Rows:
        kept = encrypt(self._own.secret_keys, key)
        return Rows(FEATURE, "secret_added", ({"id": f"sec_{secrets.token_hex(10)}", "owner": owner, "secret": kept},))

    async def encrypt(self) -> dict[str, int]:
        """Encrypt all secrets of the store by the newest of ``WEBHOOKS_SECRET_KEYS``: those that are not encrypted, and
        those by older keys. Safe to repeat, and while deliveries are signed."""
        who, keys, after, total, changed = self._session.may(Role.ADMIN), self._own.secret_keys, "", 0, 0
        if not keys:
            raise InvalidInput("there is no key to encrypt with", hint="set WEBHOOKS_SECRET_KEYS, here and for workers")
        while rows := await self._rows("secrets_page", after, SECRETS_AT_ONCE):
            after, total = rows[-1]["id"], total + len(rows)
            new = [
                {"id": row["id"], "was": row["secret"], "secret": encrypt(keys, decrypt(keys, row["secret"]))}
                for row in rows
                if not is_current(keys, row["secret"])
            ]
            if new:
                said = Audit(who, "WEBHOOK_SECRETS_ENCRYPTED", target="webhooks:secrets", after={"secrets": len(new)})
                await self._store.apply(Commit(rows=[Rows(FEATURE, "secrets_stored", tuple(new))], audits=[said]))
                changed += len(new)
        return {"secrets": total, "encrypted": changed}

    async def enable(self, endpoint: str, reason: str | None = None) -> dict[str, Any]:
        """Let an endpoint get events again, from now on."""
        return await self._turn(endpoint, "enabled", reason)

    async def disable(self, endpoint: str, reason: str | None = None) -> dict[str, Any]:
        """Send an endpoint nothing any more; what waits for it is cancelled when it is its turn."""
        return await self._turn(endpoint, "disabled", reason)

    async def _turn(self, endpoint: str, state: str, reason: str | None) -> dict[str, Any]:
        who = self._session.may(Role.OPERATOR)
        row = await self._row(endpoint)
        said = self._audit(who, state.upper(), endpoint, row["account"], reason, before={"state": row["state"]})
        change = {"id": endpoint, "by": who, "reason": reason}
        await self._store.apply(Commit(rows=[Rows(FEATURE, f"endpoint_{state}", (change,))], audits=[said]))
        return await self.show(endpoint)

    async def remove(self, endpoint: str, reason: str | None = None) -> None:
        """Remove an endpoint and its secrets; its deliveries stay to be looked at."""
        who = self._session.may(Role.OPERATOR)
        row = await self._row(endpoint)
        said = self._audit(who, "REMOVED", endpoint, row["account"], reason, before={"url": origin(row["url"])})
        gone = [
            Rows(FEATURE, "endpoint_removed", ({"id": endpoint},)),
            Rows(FEATURE, "secrets_removed", ({"owner": f"endpoint:{endpoint}"},)),
        ]
        await self._store.apply(Commit(rows=gone, audits=[said]))

    async def _new_name(self, once: str | None) -> str:
        if once is None:
            return f"ep_{secrets.token_hex(10)}"
        name = f"ep_{hashlib.sha256(once.encode()).hexdigest()[:20]}"
        if await self._rows("endpoint", name):
            raise Conflict(
                f"the endpoint {name} was added by this form already",
                hint="its secret was shown then; rotate it if lost",
            )
        return name

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

    async def _insist_on_shared(self, account: str) -> None:
        if not (self._own.secret or await self._rows("signers", "", account)):
            raise InvalidInput(
                f"the account {account!r} has no secret to share",
                hint=f"redrive webhooks rotate --account {account}, or ENTERPRISE_WEBHOOK_SECRET",
            )

    @staticmethod
    def _audit(
        who: str,
        what: str,
        endpoint: str,
        account: str,
        reason: str | None = None,
        *,
        before: Any = None,
        after: Any = None,
        kind: str = "WEBHOOK_ENDPOINT",
    ) -> Audit:
        return Audit(
            who, f"{kind}_{what}", reason, target=f"webhook:{endpoint}", scope=account, before=before, after=after
        )


def _described(text: str | None) -> str | None:
    if text is not None and (len(text) > MOST_DESCRIPTION or not text.isprintable()):
        raise InvalidInput(f"a description is one line of at most {MOST_DESCRIPTION} characters")
    return text or None
