"""Endpoints: listed, shown, added, changed, enabled, disabled, removed, and their secrets. Each change lands with its
audit row."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from typing import Annotated, Any

from redrive.errors import Conflict, InvalidInput
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.reactions import Rows
from redrive.ops.access import Role
from redrive.ops.operator.declared import Given, Limit, Page, Reason, action, look, view_of
from redrive.webhooks.address_guard import check_url, judge_url, origin
from redrive.webhooks.deliveries import Deliveries, OfAccount, WebhookService
from redrive.webhooks.delivery_tasks import delivery, made_rows
from redrive.webhooks.documents import (
    DeliveryDetail,
    EncryptedSecrets,
    EndpointAdded,
    EndpointDetail,
    EndpointSigned,
    EndpointView,
    Removed,
    Rotated,
    SecretView,
    endpoint_fields,
)
from redrive.webhooks.events import DEFAULT_ACCOUNT, FEATURE, MOST_ENDPOINTS, PING, Event, check_account, check_events
from redrive.webhooks.signing import check_secret, decrypt, encrypt, is_current, new_secret, shown_secret

MOST_DESCRIPTION = 500
SECRETS_AT_ONCE = 200
STATES = ("enabled", "disabled")
LATEST = 10  # deliveries that are shown with an endpoint


EndpointId = Annotated[str, Given("As the list of endpoints names it.", metavar="ENDPOINT")]
Events = Annotated[
    list[str] | None,
    Given("Which events it wants: batch.completed, batch.* or * (all).", metavar="TYPE", option="--event"),
]
Description = Annotated[str | None, Given("For people.", metavar="TEXT")]
Secret = Annotated[str | None, Given("One that the customer has; else one is made.", metavar="TEXT")]
Overlap = Annotated[
    float | None,
    Given("How long the old one is valid (else WEBHOOKS_ROTATION_HOURS).", metavar="HOURS", option="--overlap"),
]
ROTATED = "the old one is valid for {done.overlap_hours:g} hours more; requests carry a signature by each"


class Endpoints(WebhookService):
    """Webhooks: customers' endpoints, their secrets, deliveries, and sending events. By itself: all endpoints."""

    @look("GET /api/webhooks/endpoints", command="endpoints", empty="no endpoint yet; redrive webhooks add URL")
    async def list(
        self,
        account: OfAccount = None,
        state: Annotated[str | None, Given("enabled or disabled.", metavar="STATE")] = None,
        direct: Annotated[bool, Given("Those of calls that named a URL themselves.")] = False,
        limit: Limit = 100,
        after: Annotated[str | None, Given("Go on from this page's next.", metavar="NEXT")] = None,
    ) -> Page[EndpointView]:
        """Endpoints, by account."""
        if state is not None and state not in STATES:
            raise InvalidInput(f"{state!r} is no state of an endpoint", hint="enabled or disabled")
        place = (None, None) if after is None else self._place(after)
        rows = await self._rows("endpoints", account, state, *place, direct, limit + 1)
        found = [EndpointView(**endpoint_fields(row, whole=self._whole)) for row in rows[:limit]]
        more = len(rows) > limit
        return Page(found, json.dumps([found[-1].account, found[-1].id]) if more else None)

    @look("GET /api/webhooks/endpoints/{endpoint}", said="{done.sentence}")
    async def show(self, endpoint: EndpointId) -> EndpointDetail:
        """One endpoint, with when its secrets were made and until when they are valid, never the secrets; and its
        latest deliveries."""
        latest = (await Deliveries(self._session).list(endpoint, limit=LATEST)).items
        return view_of(EndpointDetail, await self._signed(endpoint), deliveries=latest)

    async def _signed(self, endpoint: str) -> EndpointSigned:
        row = await self._endpoint(endpoint)
        owners = [str(one["owner"]) for one in await self._rows("signers", endpoint, row["account"])]
        owner = next((kind for kind in ("endpoint", "account") if any(one.startswith(kind) for one in owners)), None)
        named = row["id"] if owner == "endpoint" else row["account"]
        dated = [] if owner is None else await self._rows("secrets", f"{owner}:{named}")
        return EndpointSigned(
            **endpoint_fields(row, whole=self._whole),
            signed_by=owner or ("settings" if self._own.secret else None),
            secrets=[
                SecretView(one["id"], to_datetime(one["created_at"]), to_datetime(one["expires_at"])) for one in dated
            ],
        )

    async def troubled(self) -> int:
        """Returns how many endpoints need somebody: enabled ones that only fail, and those that redrive disabled."""
        self._session.may(Role.VIEWER)
        rows = await self._rows("endpoint_numbers")
        failing = sum(row["failing"] for row in rows if row["state"] == "enabled")
        return int(failing) + len(await self._rows("given_up"))

    @action(
        "POST /api/webhooks/endpoints",
        said="endpoint {done.id} of {done.account} gets {done.wanted}",
        page="/webhooks/endpoints/{done.id}",
        status=201,
        creates=True,
    )
    async def add(
        self,
        url: Annotated[
            str, Given("The URL that events are sent to.", metavar="TARGET", argument="target", positional=True)
        ],
        account: Annotated[str, Given("Whose it is.", metavar="NAME")] = DEFAULT_ACCOUNT,
        events: Events = None,
        description: Description = None,
        secret: Secret = None,
        shared: Annotated[bool, Given("No secret of its own: that of its account, or of the settings.")] = False,
        once: Annotated[
            str | None, Given("Any text of your own: asked again with it, this is refused.", metavar="TEXT", once=True)
        ] = None,
    ) -> EndpointAdded:
        """Add an endpoint. Its secret is made here unless one is given, and shown this once."""
        check_account(account)
        check_url(url, https_only=self._own.https_only)
        wanted = check_events(events or ())
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
        note = self._audit("ADDED", name, account, after={"url": origin(url), "events": wanted})
        rows = [
            Rows(FEATURE, "endpoint_added", (row,)),
            *([] if key is None else [self._stored(f"endpoint:{name}", key)]),
        ]
        await self._store.apply(Commit(rows=rows, audits=[note]))
        return view_of(EndpointAdded, await self._signed(name), secret=None if key is None else shown_secret(key))

    @action("PATCH /api/webhooks/endpoints/{endpoint}", said="{done.sentence}", page="/webhooks/endpoints/{done.id}")
    async def edit(
        self,
        endpoint: EndpointId,
        url: Annotated[str | None, Given("Another URL.", metavar="TARGET", option="--to", argument="target")] = None,
        events: Events = None,
        description: Description = None,
    ) -> EndpointSigned:
        """Change the URL, the events or the description; what is not given stays. An empty description removes it."""
        row = await self._endpoint(endpoint)
        if url is None and events is None and description is None:
            raise InvalidInput("nothing to change", hint="--to, --event or --description")
        if url is not None:
            check_url(url, https_only=self._own.https_only)
            await judge_url(url, self._own)
        wanted = json.loads(row["events"]) if events is None else check_events(events)
        described = row["description"] if description is None else _described(description)
        target: str = url or row["url"]
        new = {"id": endpoint, "url": target, "events": json.dumps(wanted), "description": described}
        before = {"url": origin(row["url"]), "events": json.loads(row["events"])}
        after = {"url": origin(target), "events": wanted}
        note = self._audit("CHANGED", endpoint, row["account"], before=before, after=after)
        await self._store.apply(Commit(rows=[Rows(FEATURE, "endpoint_changed", (new,))], audits=[note]))
        return await self._signed(endpoint)

    @action("POST /api/webhooks/endpoints/{endpoint}/rotate", said=ROTATED, page="/webhooks/endpoints/{done.endpoint}")
    async def rotate(self, endpoint: EndpointId, secret: Secret = None, overlap_hours: Overlap = None) -> Rotated:
        """Give an endpoint a new secret, shown this once. The old ones are valid for so many hours more, in which each
        request carries a signature by both."""
        row = await self._endpoint(endpoint)
        made = await self._rotate(f"endpoint:{endpoint}", row["account"], secret, overlap_hours)
        return replace(made, endpoint=endpoint)

    @action("POST /api/webhooks/accounts/{account}/rotate", said=ROTATED)
    async def rotate_account(
        self,
        account: Annotated[str, Given("Whose own secret.", metavar="NAME")],
        secret: Secret = None,
        overlap_hours: Overlap = None,
    ) -> Rotated:
        """Give an account a new secret, with which its endpoints without one of their own are signed for."""
        return await self._rotate(f"account:{check_account(account)}", account, secret, overlap_hours)

    async def _rotate(self, owner: str, account: str, secret: str | None, overlap: float | None) -> Rotated:
        key = new_secret() if secret is None else check_secret(secret)
        hours = self._own.rotation_hours if overlap is None else overlap
        if not 0 <= hours <= 8760:
            raise InvalidInput("secrets overlap for 0 to 8760 hours")
        named = owner.removeprefix("endpoint:") if owner.startswith("endpoint:") else owner
        note = self._audit("SECRET_ROTATED", named, account, after={"overlap_hours": hours}, kind="WEBHOOK")
        expire = Rows(FEATURE, "secrets_expire", ({"owner": owner, "seconds": hours * 3600},))
        await self._store.apply(Commit(rows=[expire, self._stored(owner, key)], audits=[note]))
        return Rotated(account, shown_secret(key), hours)

    def _stored(self, owner: str, key: str) -> Rows:
        kept = encrypt(self._own.secret_keys, key)
        return Rows(FEATURE, "secret_added", ({"id": f"sec_{secrets.token_hex(10)}", "owner": owner, "secret": kept},))

    @action(
        "POST /api/webhooks/secrets/encrypt",
        role=Role.ADMIN,
        said="{done.encrypted} of {done.secrets} secrets were encrypted by the newest key; the others are",
    )
    async def encrypt(self) -> EncryptedSecrets:
        """Encrypt all secrets of the store by the newest of WEBHOOKS_SECRET_KEYS: those that are not encrypted, and
        those by older keys. Safe to repeat, and while deliveries are signed."""
        keys, after, total, changed = self._own.secret_keys, "", 0, 0
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
                after_it = {"secrets": len(new)}
                note = Audit(self._who, "WEBHOOK_SECRETS_ENCRYPTED", target="webhooks:secrets", after=after_it)
                await self._store.apply(Commit(rows=[Rows(FEATURE, "secrets_stored", tuple(new))], audits=[note]))
                changed += len(new)
        return EncryptedSecrets(total, changed)

    @action(
        "POST /api/webhooks/endpoints/{endpoint}/enable", said="endpoint {done.id} of {done.account} is {done.state}"
    )
    async def enable(self, endpoint: EndpointId, reason: Reason = None) -> EndpointSigned:
        """Send an endpoint events again, from now on."""
        return await self._turn(endpoint, "enabled", reason)

    @action(
        "POST /api/webhooks/endpoints/{endpoint}/disable", said="endpoint {done.id} of {done.account} is {done.state}"
    )
    async def disable(self, endpoint: EndpointId, reason: Reason = None) -> EndpointSigned:
        """Send an endpoint nothing any more; what waits for it is cancelled when it is its turn."""
        return await self._turn(endpoint, "disabled", reason)

    async def _turn(self, endpoint: str, state: str, reason: str | None) -> EndpointSigned:
        row = await self._endpoint(endpoint)
        note = self._audit(state.upper(), endpoint, row["account"], reason, before={"state": row["state"]})
        change = {"id": endpoint, "by": self._who, "reason": reason}
        await self._store.apply(Commit(rows=[Rows(FEATURE, f"endpoint_{state}", (change,))], audits=[note]))
        return await self._signed(endpoint)

    @action(
        "DELETE /api/webhooks/endpoints/{endpoint}",
        said="endpoint {endpoint} is removed",
        page="/webhooks/endpoints",
        status=204,
    )
    async def remove(self, endpoint: EndpointId, reason: Reason = None) -> Removed:
        """Remove an endpoint and its secrets. Its deliveries stay to be looked at."""
        row = await self._endpoint(endpoint)
        note = self._audit("REMOVED", endpoint, row["account"], reason, before={"url": origin(row["url"])})
        gone = [
            Rows(FEATURE, "endpoint_removed", ({"id": endpoint},)),
            Rows(FEATURE, "secrets_removed", ({"owner": f"endpoint:{endpoint}"},)),
        ]
        await self._store.apply(Commit(rows=gone, audits=[note]))
        return Removed(endpoint)

    @action(
        "POST /api/webhooks/endpoints/{endpoint}/ping",
        said="enqueued; redrive webhooks show-delivery {done.id} tells what came of it",
        page="/webhooks/deliveries/{done.id}",
        status=202,
    )
    async def ping(self, endpoint: EndpointId) -> DeliveryDetail:
        """Send an endpoint an event that means nothing, once, also if it is disabled."""
        row = await self._endpoint(endpoint)
        event = Event(PING, {"endpoint": endpoint}, row["account"])
        task = delivery(event, endpoint, 1, forced=True)
        note = Audit(self._who, "WEBHOOK_PINGED", None, task.id, target=f"webhook:{endpoint}", scope=row["account"])
        await self._store.apply(Commit(enqueues=[task], rows=[made_rows(event, [(endpoint, task)], 0)], audits=[note]))
        return await Deliveries(self._session).show(str(task.id))

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
    def _whole(self) -> bool:
        return self._session.caller.role >= Role.OPERATOR

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

    def _audit(
        self,
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
            self._who, f"{kind}_{what}", reason, target=f"webhook:{endpoint}", scope=account, before=before, after=after
        )


def _described(text: str | None) -> str | None:
    if text is not None and (len(text) > MOST_DESCRIPTION or not text.isprintable()):
        raise InvalidInput(f"a description is one line of at most {MOST_DESCRIPTION} characters")
    return text or None
