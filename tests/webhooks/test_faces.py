"""The same over HTTP, from the command line, and in the console."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from redrive import App
from tests.api.conftest import served
from tests.cli.conftest import Said, here, redrive  # noqa: F401  (fixtures)
from tests.console.conftest import console, done, page, send, text_of
from tests.webhooks.conftest import run_all
from tests.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio


async def test_over_http(memory: App, receiver: Receiver) -> None:
    async with served(memory) as client:
        new = {"url": receiver.url(), "account": "acme", "events": ["invoice.*"], "description": "their ERP"}
        made = await client.post("/api/webhooks/endpoints", json=new)
        assert made.status_code == 201 and made.json()["secret"].startswith("whsec_")
        one = f"/api/webhooks/endpoints/{made.json()['id']}"
        shown = (await client.get(one)).json()
        assert "secret" not in shown and shown["signedBy"] == "endpoint" and shown["failingSince"] is None
        assert (await client.patch(one, json={"events": ["*"]})).json()["events"] == ["*"]
        turned = await client.post(f"{one}/rotate", json={"overlapHours": 2})
        assert turned.json()["overlapHours"] == 2 and turned.json()["secret"] != made.json()["secret"]
        assert (await client.post("/api/webhooks/accounts/acme/rotate", json={})).json()["account"] == "acme"
        keyless = await client.post("/api/webhooks/secrets/encrypt")
        assert keyless.status_code == 422 and "no key to encrypt with" in keyless.text
        assert (await client.post(f"{one}/disable", json={"reason": "why"})).json()["state"] == "disabled"
        assert (await client.post(f"{one}/enable", json={})).json()["state"] == "enabled"
        sent = await client.post(
            "/api/webhooks/events", json={"type": "invoice.paid", "data": {"n": 1}, "account": "acme"}
        )
        assert sent.status_code == 202 and len(sent.json()["deliveries"]) == 1
        assert (await client.post(f"{one}/ping")).status_code == 202
        await run_all(memory)
        listed = (await client.get("/api/webhooks/deliveries", params={"type": "invoice.paid"})).json()
        assert [item["state"] for item in listed["items"]] == ["completed"] and listed["next"] is None
        found = (await client.get(f"/api/webhooks/deliveries/{listed['items'][0]['id']}")).json()
        assert found["attempts"][0]["response"]["body"] == "thanks" and json.loads(found["body"])["data"] == {"n": 1}
        again = await client.post(f"/api/webhooks/deliveries/{found['id']}/redeliver", json={})
        assert again.status_code == 202 and again.json()["round"] == 1
        assert (await client.get("/api/webhooks/endpoints", params={"account": "acme"})).json()["items"][0]["id"] in one
        assert (await client.delete(one)).status_code == 204 and (await client.get(one)).status_code == 404
        wrong = {**new, "url": "http://169.254.169.254/latest/meta-data"}
        refused = await client.post("/api/webhooks/endpoints", json=wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "WEBHOOK_ADDRESS_REFUSED")
        assert (await client.get("/api/webhooks/deliveries/nonsense")).status_code == 422


def test_from_the_command_line(
    redrive: Callable[..., Said],  # noqa: F811
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEBHOOKS_ALLOW_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("REDRIVE_ACTOR", "ann")
    receiver.answers = [Reply(410), Reply()]
    assert redrive("migrate").code == 0 and "no endpoint yet" in redrive("webhooks", "endpoints").out
    made = redrive("webhooks", "add", receiver.url(), "--account", "acme", "--event", "invoice.*", "--json").json
    one = made["id"]
    assert one in redrive("webhooks", "endpoints").out
    assert "with its own secret" in redrive("webhooks", "show", one).out
    assert "about    theirs" in redrive("webhooks", "edit", one, "--description", "theirs").out
    assert redrive("webhooks", "edit", one).code == 2
    assert redrive("webhooks", "rotate", one, "--overlap", "1").out.startswith("whsec_")
    assert redrive("webhooks", "rotate").code == 2
    assert "WEBHOOKS_SECRET_KEYS" in redrive("webhooks", "encrypt").err
    monkeypatch.setenv("WEBHOOKS_SECRET_KEYS", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    assert redrive("webhooks", "encrypt", "--json").json == {"secrets": 2, "encrypted": 2}
    assert "1 delivery" in redrive("webhooks", "send", "invoice.paid", '{"n": 1}', "--account", "acme").out
    assert "no enabled endpoint" in redrive("webhooks", "send", "batch.done", "--account", "acme").out
    assert redrive("webhooks", "send", "invoice.paid", "{nonsense").code == 2
    assert redrive("work", "--stop-when-empty").code == 0
    [delivery] = redrive("webhooks", "deliveries", one, "--json").json["items"]
    shown = redrive("webhooks", "show-delivery", delivery["id"]).out
    assert "HTTP 410" in shown and "> webhook-signature: v1,•••" in shown and '"data":{"n":1}' in shown
    assert "disabled" in redrive("webhooks", "endpoints", "--state", "disabled").out
    refused = redrive("webhooks", "redeliver", delivery["id"])
    assert refused.code == 1 and f"redrive webhooks enable {one}" in refused.err
    assert redrive("webhooks", "enable", one, "--reason", "it is back").code == 0
    assert redrive("webhooks", "redeliver", delivery["id"]).code == 0
    assert "enqueued" in redrive("webhooks", "ping", one).out
    assert redrive("work", "--stop-when-empty").code == 0
    assert {item["state"] for item in redrive("webhooks", "deliveries", "--json").json["items"]} == {"completed"}
    assert redrive("webhooks", "disable", one).code == 0 and redrive("webhooks", "remove", one).code == 0
    assert redrive("webhooks", "show", one).code == 1


async def test_in_the_console(memory: App, receiver: Receiver) -> None:
    async with console(memory) as client:
        assert "No endpoint" in text_of(await page(client, "/webhooks/endpoints"))
        form = {"url": receiver.url(), "account": "<acme>", "events": "invoice.*, batch.done", "once": "1"}
        answer = await send(client, "/act/webhooks.add", form, "/webhooks/add")
        assert answer.status_code == 200 and "whsec_" in answer.text
        [one] = await memory.webhooks.endpoints("<acme>")
        assert one["events"] == ["invoice.*", "batch.done"]
        path = f"/webhooks/endpoints/{one['id']}"
        shown = await page(client, path)
        assert "whsec_" not in shown and "<acme>" not in shown and "Send ping" in shown
        await done(client, path, {"url": receiver.url(), "events": "*", "description": "theirs"}, path)
        [one] = await memory.webhooks.endpoints("<acme>")
        assert (one["events"], one["description"]) == (["*"], "theirs")
        it = {"endpoint": one["id"]}
        await done(client, "/act/webhooks.ping", it, path)
        await run_all(memory)
        listed = await page(client, "/webhooks/deliveries?state=completed")
        assert "webhook.ping" in listed
        sent = await memory.webhooks.send("invoice.paid", {"x": "<b>"}, account="<acme>")
        receiver.answers = [Reply(410, body=b"<script>alert(1)</script>")]
        await run_all(memory)
        delivery = sent["deliveries"][0]["delivery"]
        told = await page(client, f"/webhooks/deliveries/{delivery}")
        assert "HTTP 410" in told and "<script>alert" not in told and "&lt;script&gt;alert(1)" in told
        assert "what was sent and answered" in text_of(await page(client, f"/tasks/{delivery}"))
        assert "It was disabled" in text_of(await page(client, path))
        await done(client, "/act/webhooks.enable", it, path)
        receiver.answers = [Reply()]
        await done(client, "/act/webhook_deliveries.redeliver", {"delivery": delivery, "reason": "again"}, path)
        await run_all(memory)
        assert "redelivery 1" in text_of(await page(client, f"/webhooks/deliveries/{delivery}"))
        turned = await send(client, "/act/webhooks.rotate", it | {"overlap_hours": "1"}, path)
        assert "whsec_" in turned.text and "valid for 1 hours more" in turned.text
        assert "whsec_" not in str(turned.headers), "no notice carries it"
        await done(client, "/act/webhooks.remove", it, path)
        assert "there is no webhook endpoint" in text_of(await page(client, path, 404))
