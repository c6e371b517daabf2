"""Endpoints and their secrets: what a caller may do, what lands with it, what is told when they fail."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from redrive import App, webhooks
from redrive.errors import Conflict, InvalidInput, NotAllowed
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ops.access import Caller, Role
from redrive.ops.operator.declared import declared_by
from redrive.ops.retention import retention_of
from redrive.stores.sql import statements
from redrive.webhooks import WEBHOOKS, event_task
from redrive.webhooks.address_guard import AddressRefused
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.doctor import disable_failing
from redrive.webhooks.documents import EncryptedSecrets, EndpointUnknown
from redrive.webhooks.metrics import fleet
from redrive.webhooks.service import Endpoints
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import check_keys, check_secret, shown_secret
from tests.webhooks.conftest import BOTH_STORES, added, deliveries, endpoints, make_app, run_all
from tests.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio
VIEWER = Caller("vic", Role.VIEWER)
PACKAGE = Path(webhooks.__file__).parent


async def actions(app: App) -> list[str]:
    rows = await (await app.store()).audit(AuditFilter(), limit=50)
    return [row.action.removeprefix("WEBHOOK_") for row in rows][::-1]


@BOTH_STORES
async def test_the_life_of_an_endpoint_is_in_the_audit_log(app: App, receiver: Receiver) -> None:
    own = await endpoints(app)
    made = await added(app, receiver, "batch.*", "invoice.paid", description="their ERP")
    assert made.secret.startswith("whsec_") and made.events == ["batch.*", "invoice.paid"]
    shown = await own.show(made.id)
    assert not hasattr(shown, "secret") and len(shown.secrets) == 1 and shown.signed_by == "endpoint"
    changed = await own.edit(made.id, events=["*"], description="")
    assert (changed.events, changed.description, changed.url) == (["*"], None, receiver.url())
    assert (await own.disable(made.id, "they asked")).disabled_by == "ann"
    assert (await own.enable(made.id)).disabled_by is None
    await own.rotate(made.id)
    await own.remove(made.id)
    with pytest.raises(EndpointUnknown):
        await own.show(made.id)
    assert await actions(app) == [
        "ENDPOINT_ADDED",
        "ENDPOINT_CHANGED",
        "ENDPOINT_DISABLED",
        "ENDPOINT_ENABLED",
        "SECRET_ROTATED",
        "ENDPOINT_REMOVED",
    ]
    [row] = await (await app.store()).audit(AuditFilter(action="WEBHOOK_ENDPOINT_ADDED", scope="acme"), limit=5)
    assert made.secret not in str(row)


async def test_while_a_secret_is_replaced_requests_are_signed_with_both(app: App, receiver: Receiver) -> None:
    own = await endpoints(app)
    made = await added(app, receiver)
    new = await own.rotate(made.id, overlap_hours=1)
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    for secret in (made.secret, new.secret):
        Webhook(secret).verify(receiver.got[0].body, dict(receiver.got[0].headers))
    await own.rotate(made.id, secret="a text of the customer's own", overlap_hours=0)
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    last = receiver.got[-1]
    Webhook(shown_secret("a text of the customer's own")).verify(last.body, dict(last.headers))
    for secret in (made.secret, new.secret):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(last.body, dict(last.headers))


@BOTH_STORES
async def test_secrets_are_encrypted_where_a_key_is_set(app_url: str, receiver: Receiver) -> None:
    """Those from before too, on demand; keys change one after the other, and deliveries are signed all the time."""
    root, old, new = Caller("root", Role.ADMIN), *(base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))
    plain = make_app(app_url)
    await plain.migrate()
    made = await added(plain, receiver)
    store = await plain.store()

    async def stored() -> list[str]:
        return [row["secret"] for row in await store.sql.feature_rows("webhooks", "secrets_page", "", 10)]

    assert await stored() == [made.secret]
    assert WEBHOOKS.examine is not None and WEBHOOKS.dependencies is not None
    unsealed = make_app(app_url, secret_keys=[old])
    found = await WEBHOOKS.examine(store, unsealed.settings)
    assert [(one.code, one.fix) for one in found] == [("webhooks_clear_secrets", "redrive webhooks encrypt")]
    assert not await WEBHOOKS.dependencies(store, plain.settings)
    turned: list[str] = []
    for keys, wanted in (([old], 1), ([old], 0), ([new, old], 2), ([new], 0)):
        app = make_app(app_url, secret_keys=keys)
        assert await (await endpoints(app, root)).encrypt() == EncryptedSecrets(1 + len(turned), wanted)
        if not turned:
            turned.append((await (await endpoints(app)).rotate(made.id, overlap_hours=1)).secret)
        assert all(one.startswith("fernet:") for one in await stored())
        assert not any(secret in one for one in await stored() for secret in (made.secret, *turned))
        await app.webhooks.send("invoice.paid", account="acme")
        await run_all(app)
        for secret in (made.secret, *turned):
            Webhook(secret).verify(receiver.got[-1].body, dict(receiver.got[-1].headers))
        await app.close()
    assert len(receiver.got) == 4
    with pytest.raises(NotAllowed):
        await (await endpoints(plain)).encrypt()
    with pytest.raises(InvalidInput, match="no key to encrypt with"):
        await (await endpoints(plain, root)).encrypt()
    await plain.webhooks.send("invoice.paid", account="acme")
    await run_all(plain)
    assert len(receiver.got) == 4, "a process without the key sends nothing"
    task = next(iter(await store.find(Query(states=(State.DELAYED,)))))
    assert task.attempt_count == 0, "it is left to others, at no attempt's cost"
    assert "this process has no key: set WEBHOOKS_SECRET_KEYS" in str(task.memo)
    [key] = await WEBHOOKS.dependencies(store, plain.settings)
    assert (key.ok, key.blocks) == (False, False) and "this process has no key" in str(key.detail)
    for keys in ([new], [old]):
        app = make_app(app_url, secret_keys=keys)
        assert not await WEBHOOKS.examine(await app.store(), app.settings)
        assert not await WEBHOOKS.dependencies(await app.store(), app.settings)
        await app.close()
    await unsealed.close()
    await plain.close()


@pytest.mark.parametrize("keys", ["short", "a" * 43, ["x"]])
def test_what_is_no_key_is_refused_and_not_repeated(keys: Any) -> None:
    with pytest.raises(ValueError, match="key 1 is no 32 bytes in URL-safe base64"):
        check_keys([keys] if isinstance(keys, str) else keys)
    with pytest.raises(InvalidInput, match="does not begin with fernet:"):
        check_secret("fernet:0123456789abcdef")


@BOTH_STORES
async def test_secrets_of_an_account_and_of_the_settings(app: App, receiver: Receiver) -> None:
    own = await endpoints(app)
    with pytest.raises(InvalidInput, match="no secret to share"):
        await added(app, receiver, shared=True)
    account = await own.rotate_account("acme")
    made = await added(app, receiver, shared=True)
    assert (made.secret, made.signed_by) == (None, "account")
    await app.webhooks.send("invoice.paid", account="acme")
    await app.webhooks.send("invoice.paid", account="acme", url=receiver.url("/batch"))
    await run_all(app)
    for got in receiver.got:
        Webhook(account.secret).verify(got.body, dict(got.headers))


async def test_the_secret_of_the_settings_signs_for_who_has_none(receiver: Receiver) -> None:
    app = make_app("sqlite:///:memory:", secret="that of the whole enterprise")
    await app.migrate()
    assert (await added(app, receiver, shared=True)).signed_by == "settings"
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    Webhook(shown_secret("that of the whole enterprise")).verify(receiver.got[0].body, dict(receiver.got[0].headers))
    await app.close()


async def test_without_any_secret_nothing_is_sent(memory: App, receiver: Receiver) -> None:
    with pytest.raises(InvalidInput, match="no secret to sign for http://") as refused:
        await memory.webhooks.send("batch.completed", account="acme", url=receiver.url("/key"))
    assert refused.value.code == "WEBHOOK_NO_SECRET" and "rotate --account acme" in str(refused.value.hint)
    assert "/key" not in str(refused.value), "the path may be somebody's key"
    with pytest.raises(InvalidInput, match="no secret"):
        await (await deliveries(memory)).send("batch.completed", account="acme", url=receiver.url())
    # A secret may go before the event is sent: then the delivery says so.
    await memory.apply(Commit(enqueues=[event_task("batch.completed", {}, "acme", url=receiver.url())]))
    await run_all(memory)
    [task] = await memory.failed.list()
    assert task.error_code == "WEBHOOK_NO_SECRET" and receiver.got == []
    assert WEBHOOKS.examine is not None
    found = await WEBHOOKS.examine(await memory.store(), memory.settings)
    assert "webhooks_unsigned" in [one.code for one in found]


def test_who_may() -> None:
    acts = [one for service in (Endpoints, Deliveries) for one in declared_by(service).values() if not one.looks]
    assert {one.verb for one in acts if one.role is Role.ADMIN} == {"encrypt"}
    assert {one.role for one in acts} == {Role.OPERATOR, Role.ADMIN}


async def test_a_viewer_sees_no_path(memory: App, receiver: Receiver) -> None:
    made = await added(memory, receiver, description="Bob's own")
    await memory.webhooks.send("invoice.paid", {"name": "Bob"}, account="acme")
    await run_all(memory)
    own, sent = await endpoints(memory, VIEWER), await deliveries(memory, VIEWER)
    assert (await own.show(made.id)).url == f"http://127.0.0.1:{receiver.port}/…"
    assert "Bob" not in str([await own.show(made.id), await own.list()])
    [listed] = (await sent.list()).items
    seen = await sent.show(listed.id)
    assert seen.body is None and seen.attempts[0].request is None and "Bob" not in str(seen)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"url": "http://10.0.0.1/"}, AddressRefused),
        ({"url": "http://localhost:22/", "allow": []}, AddressRefused),
        ({"url": "nonsense"}, InvalidInput),
        ({"events": ["no spaces"]}, InvalidInput),
        ({"events": ["*.paid"]}, InvalidInput),
        ({"events": ["a"] * 51 + [str(n) for n in range(60)]}, InvalidInput),
        ({"account": "with\nlines"}, InvalidInput),
        ({"secret": "short"}, InvalidInput),
        ({"description": "x" * 501}, InvalidInput),
        ({"secret": "a secret of the customer", "shared": True}, InvalidInput),
    ],
)
async def test_what_cannot_be_added_is_refused_and_nothing_kept(given: dict, error: type[Exception]) -> None:
    app = make_app("sqlite:///:memory:", **({"allow_networks": given.pop("allow")} if "allow" in given else {}))
    await app.migrate()
    own = await endpoints(app)
    with pytest.raises(error):
        await own.add(**{"account": "acme", "url": "http://127.0.0.1:9/", **given})
    assert (await own.list()).items == [] and await actions(app) == []
    await app.close()


async def test_a_form_that_is_sent_twice_adds_one(memory: App, receiver: Receiver) -> None:
    await added(memory, receiver, once="form-1")
    with pytest.raises(Conflict):
        await added(memory, receiver, once="form-1")
    assert len((await (await endpoints(memory)).list()).items) == 1


@BOTH_STORES
async def test_lists_come_by_pages(app: App, receiver: Receiver) -> None:
    own = await endpoints(app)
    for account in ("b", "a", "a", "c"):
        await added(app, receiver, account=account)
    first = await own.list(limit=3)
    rest = await own.list(limit=3, after=first.next)
    assert [one.account for one in (*first.items, *rest.items)] == ["a", "a", "b", "c"]
    assert rest.next is None and len((await own.list("a")).items) == 2
    for n in range(5):
        await app.webhooks.send("invoice.paid" if n else "invoice.late", account="a")
    sent = await deliveries(app)
    page = await sent.list(limit=4)
    more = await sent.list(limit=400, before=page.next)
    seen = [one.id for one in (*page.items, *more.items)]
    assert len(seen) == 10 and seen == sorted(seen, reverse=True)
    assert len((await sent.list(type="invoice.late", state="pending", account="a")).items) == 2
    assert (await sent.list(state="failed")).items == []


@BOTH_STORES
async def test_endpoints_that_only_fail_are_told_and_then_disabled(app_url: str, receiver: Receiver) -> None:
    app = make_app(app_url, retries=0, failing_hours=0, disable_days=0.0)
    await app.migrate()
    made = await added(app, receiver)
    receiver.answers = [Reply(500)]
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    store = await app.store()
    assert WEBHOOKS.examine is not None and WEBHOOKS.duties is not None
    assert [one.code for one in await WEBHOOKS.examine(store, app.settings)] == ["webhooks_failing"]
    assert await fleet(store, app.settings) == {
        "redrive_webhooks_failing": {(): 1.0},
        "redrive_webhooks_endpoints": {("enabled",): 1.0, ("disabled",): 0.0},
    }
    assert await disable_failing(store, 5) == []
    assert await disable_failing(store, 0) == [made.id]
    assert [one.code for one in await WEBHOOKS.examine(store, app.settings)] == ["webhooks_disabled"]
    assert await (await endpoints(app)).troubled() == 1
    await (await endpoints(app)).disable(made.id, "I know")
    assert await WEBHOOKS.examine(store, app.settings) == []
    assert WEBHOOKS.duties(app.settings) == [], "zero days: never"
    await app.close()


@BOTH_STORES
async def test_what_is_old_is_removed(app_url: str, receiver: Receiver) -> None:
    app = make_app(app_url, keep_days=1e-9)
    await app.migrate()
    await added(app, receiver)
    await app.webhooks.send("a.b", account="acme")
    await app.webhooks.send("a.b", account="acme", url=receiver.url("/once"), secret="a secret of this call")
    await run_all(app)
    import asyncio

    await asyncio.sleep(1.1)  # SQLite keeps some of these times by the second
    await (await app.store()).upkeep("prune", retention_of(app.settings, app.features))
    await (await app.store()).upkeep("prune", retention_of(app.settings, app.features))
    assert (await (await deliveries(app)).list()).items == []
    assert (await (await endpoints(app)).list(direct=True)).items == []
    assert len((await (await endpoints(app)).list()).items) == 1
    for table in ("attempts",):
        assert (
            await (await app.store()).sql.feature_rows("webhooks", table, "01a1e730-71e5-72d7-bad5-92561152cf72") == []
        )
    await app.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOKS_ALLOW_NETWORKS", "127.0.0.1/8"),
        ("WEBHOOKS_PORTS", "443,http"),
        ("WEBHOOKS_PORTS", "0"),
        ("ENTERPRISE_WEBHOOK_SECRET", "whsec_%%%"),
        ("ENTERPRISE_WEBHOOK_TIMEOUT_MS", "0"),
        ("ENTERPRISE_WEBHOOK_RETRIES", "-1"),
    ],
)
def test_settings_that_cannot_be_used_are_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.errors import ConfigError

    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name) as told:
        App("sqlite:///:memory:")
    assert name != "ENTERPRISE_WEBHOOK_SECRET" or value not in str(told.value)


def test_settings_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOKS_ALLOW_NETWORKS", "127.0.0.0/8, ::1/128")
    monkeypatch.setenv("WEBHOOKS_PORTS", "[443, 8443]")
    monkeypatch.setenv("ENTERPRISE_WEBHOOK_SECRET", "of the enterprise")
    monkeypatch.setenv("ENTERPRISE_WEBHOOK_RETRIES", "2")
    monkeypatch.setenv("WEBHOOKS_SLOW_RETRIES", "11")
    own = App("sqlite:///:memory:").settings.of(WebhookSettings)
    assert (own.allow_networks, own.ports, own.attempts) == (["127.0.0.0/8", "::1/128"], [443, 8443], 14)
    assert own.secret == "of the enterprise" and own.secret not in repr(own)


@pytest.mark.parametrize("by", ["endpoint", "account", "state", "event"])
def test_a_page_of_deliveries_is_read_by_an_index(by: str, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "plan.db")
    connection.executescript((PACKAGE / "migrations/sqlite/0001_tables.up.sql").read_text())
    statement = statements("redrive.webhooks", "sqlite.sql")[f"deliveries_by_{by}"]
    plan = connection.execute(f"explain query plan {statement}", ("a", "b", "c", None, "d", None, 10)).fetchall()
    assert "SEARCH d USING INDEX" in str(plan) and "SCAN" not in str(plan), plan
    assert by == "event" or "TEMP B-TREE" not in str(plan), "the order is that of the index"
    connection.close()
