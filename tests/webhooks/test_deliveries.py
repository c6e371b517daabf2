"""Deliveries from the event to the receiver, on both stores, over real sockets."""

from __future__ import annotations

import json

import pytest
from standardwebhooks.webhooks import Webhook

from redrive import App
from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.webhooks.deliveries import DeliveryNotPossible
from redrive.webhooks.delivery_tasks import event_task, wait_after
from tests.webhooks.conftest import BOTH_STORES, added, deliveries, ended, endpoints, make_app, only, run_all
from tests.webhooks.receiver import Receiver, Reply

pytestmark = pytest.mark.anyio


@BOTH_STORES
async def test_an_event_reaches_those_who_want_it_and_is_verified_by_them(app: App, receiver: Receiver) -> None:
    wanted = await added(app, receiver, "invoice.*")
    await added(app, receiver, "batch.completed")
    await added(app, receiver, account="another")
    sent = await app.webhooks.send("invoice.paid", {"total": 12, "who": "Zoë"}, account="acme")
    assert [one["endpoint"] for one in sent["deliveries"]] == [wanted.id]
    await run_all(app)
    [got] = receiver.got
    assert got.headers["webhook-id"] == sent["event"]
    verified = Webhook(wanted.secret).verify(got.body, dict(got.headers))
    assert (verified["type"], verified["data"]) == ("invoice.paid", {"total": 12, "who": "Zoë"})
    found = await only(app)
    assert (found.state, found.task, found.body) == ("completed", "completed", got.body.decode())
    [attempt] = found.attempts
    assert (attempt.status, attempt.outcome, attempt.response["body"]) == (200, "delivered", "thanks")
    assert attempt.request["headers"]["webhook-signature"] == "v1,•••"


async def test_a_retry_has_the_same_id_and_body_and_a_signature_of_its_own(app: App, receiver: Receiver) -> None:
    endpoint = await added(app, receiver)
    receiver.answers = [
        Reply(503, body=b"not now"),
        Reply(302, {"Location": "http://127.0.0.1:1/"}),
        Reply(204, body=b""),
    ]
    sent = await app.webhooks.send("invoice.paid", {"n": 1}, account="acme")
    found = await ended(app, sent["deliveries"][0]["delivery"])
    assert [one.status for one in found.attempts] == [503, 302, 204], "redirects are not followed"
    first, second, third = receiver.got
    assert first.body == second.body == third.body
    assert {one.headers["webhook-id"] for one in receiver.got} == {sent["event"]}
    assert third.headers["webhook-timestamp"] > first.headers["webhook-timestamp"]
    Webhook(endpoint.secret).verify(third.body, dict(third.headers))


@BOTH_STORES
async def test_what_does_not_arrive_is_a_dead_letter_and_can_be_redelivered(app_url: str, receiver: Receiver) -> None:
    app = make_app(app_url, retries=0)
    await app.migrate()
    endpoint = await added(app, receiver)
    receiver.answers = [Reply(500, {"Set-Cookie": "key=1"}, b"oops"), Reply()]
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    failed = await only(app)
    assert (failed.state, failed.attempts[0].response["headers"]["set-cookie"]) == ("failed", "•••")
    assert (await (await endpoints(app)).show(endpoint.id)).failing_since is not None
    [task] = await app.failed.list()
    assert (task.kind, task.scope, task.group) == ("WEBHOOK_DELIVERY", "acme", f"webhook:{endpoint.id}")
    own = await deliveries(app)
    await own.redeliver(failed.id, "it is mended")
    await run_all(app)
    again = await own.show(failed.id)
    assert (again.state, [one.replay for one in again.attempts]) == ("completed", [0, 1])
    assert (await (await endpoints(app)).show(endpoint.id)).failing_since is None
    # One that has arrived is sent again by another task, with the id that the receiver knows.
    more = await own.redeliver(failed.id)
    assert more.id != failed.id and more.event == failed.event
    await run_all(app)
    assert len({one.headers["webhook-id"] for one in receiver.got}) == 1 and len(receiver.got) == 3
    assert len({one.body for one in receiver.got}) == 1
    await app.close()


@BOTH_STORES
async def test_gone_disables_the_endpoint_and_is_told(app: App, receiver: Receiver) -> None:
    endpoint = await added(app, receiver)
    receiver.answers = [Reply(410)]
    for _ in range(2):
        await app.webhooks.send("invoice.paid", account="acme")
    await drain_one_by_one(app)
    states = [one.state for one in (await (await deliveries(app)).list()).items]
    assert sorted(states) == ["cancelled", "failed"] and len(receiver.got) == 1
    found = await (await endpoints(app)).show(endpoint.id)
    assert (found.state, found.disabled_by, found.disabled_reason) == (
        "disabled",
        "redrive",
        "it answered 410 Gone",
    )
    [said] = await (await app.store()).audit(AuditFilter(action="WEBHOOK_ENDPOINT_DISABLED"), limit=9)
    assert (said.actor, said.target) == ("redrive", f"webhook:{endpoint.id}")
    assert await app.webhooks.send("invoice.paid", account="acme") | {"event": ""} == {
        "event": "",
        "type": "invoice.paid",
        "account": "acme",
        "deliveries": [],
    }
    own = await deliveries(app)
    [dead] = (await own.list(state="failed")).items
    with pytest.raises(DeliveryNotPossible):
        await own.redeliver(dead.id)
    await (await endpoints(app)).ping(endpoint.id)  # to see whether it is back, before it is enabled
    receiver.answers = [Reply()]
    await run_all(app)
    assert json.loads(receiver.got[-1].body)["type"] == "webhook.ping"


async def drain_one_by_one(app: App) -> None:
    from tests.worker.conftest import drain

    await drain(app, queues=("webhooks",), concurrency=1)


@BOTH_STORES
async def test_an_event_that_is_sent_twice_by_its_id_arrives_once(app: App, receiver: Receiver) -> None:
    await added(app, receiver)
    first = await app.webhooks.send("invoice.paid", {"n": 1}, account="acme", event_id="paid-1")
    second = await app.webhooks.send("invoice.paid", {"n": 1}, account="acme", event_id="paid-1")
    assert [one["new"] for one in (*first["deliveries"], *second["deliveries"])] == [True, False]
    await run_all(app)
    assert len(receiver.got) == 1 and len((await (await deliveries(app)).list()).items) == 1


async def test_an_event_as_a_task_becomes_deliveries_once(app: App, receiver: Receiver) -> None:
    """As other features enqueue it, among the effects of a settlement."""
    from redrive.kernel.commit import Commit

    await added(app, receiver, "batch.*")
    for _ in range(2):
        await app.apply(Commit(enqueues=[event_task("batch.completed", {"id": "b1"}, "acme", "batch:b1:completed")]))
    await run_all(app)
    [got] = receiver.got
    assert got.headers["webhook-id"] == "batch:b1:completed"


@BOTH_STORES
async def test_a_url_of_one_call(app: App, receiver: Receiver) -> None:
    await added(app, receiver)
    secret = "a secret of this batch"
    sent = await app.webhooks.send("batch.completed", {}, account="acme", url=receiver.url("/b1"), secret=secret)
    await run_all(app)
    [got] = receiver.got
    assert got.path == "/b1", "to that URL alone"
    from redrive.webhooks.signing import shown_secret

    Webhook(shown_secret(secret)).verify(got.body, dict(got.headers))
    again = await app.webhooks.send("batch.failed", {}, account="acme", url=receiver.url("/b1"), secret=secret)
    assert again["deliveries"][0]["endpoint"] == sent["deliveries"][0]["endpoint"]
    listed = await (await endpoints(app)).list(direct=True)
    assert [one.url for one in listed.items] == [receiver.url("/b1")]
    assert len((await (await endpoints(app)).list()).items) == 1
    with pytest.raises(InvalidInput):
        await app.webhooks.send("batch.completed", {}, account="acme", secret=secret)


@BOTH_STORES
async def test_in_the_callers_own_transaction(app: App, receiver: Receiver, app_url: str) -> None:
    import sqlite3

    import psycopg

    await added(app, receiver)
    if app_url.startswith("sqlite"):
        connection = sqlite3.connect(app_url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("begin immediate")
        await app.webhooks.send("invoice.paid", account="acme", connection=connection)
        connection.execute("rollback")
        connection.close()
    else:
        async with await psycopg.AsyncConnection.connect(app_url) as own:
            await app.webhooks.send("invoice.paid", account="acme", connection=own)
            await own.rollback()
    assert (await (await deliveries(app)).list()).items == []


def test_waits_grow_and_then_follow_the_core() -> None:
    assert [wait_after(n, 3, 0.0) for n in (1, 2, 3)] == [0.5, 1.5, 3.5]
    slow = [wait_after(n, 3, 1.0) for n in range(4, 20)]
    assert slow[0] == 120 and slow == sorted(slow) and slow[-1] == 86_400


async def test_a_server_that_asks_for_patience_is_given_it(memory: App, receiver: Receiver) -> None:
    await added(memory, receiver)
    receiver.answers = [Reply(429, {"Retry-After": "3600"})]
    await memory.webhooks.send("invoice.paid", account="acme")
    await run_all(memory)
    delivery = await only(memory)
    wait = (delivery.next_attempt_at - delivery.attempts[0].at).total_seconds()
    assert 3500 < wait < 3700


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [(Reply(after=20), "timeout"), (Reply(400), "http_400"), (Reply(304), "http_304")],
)
async def test_failures_that_are_tried_again(receiver: Receiver, reply: Reply, outcome: str) -> None:
    # Only who is silent is waited for in vain; the others have time to answer on a busy machine.
    app = make_app("sqlite:///:memory:", timeout_ms=200 if outcome == "timeout" else 30_000)
    await app.migrate()
    await added(app, receiver)
    receiver.answers = [reply]
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    delivery = await only(app)
    assert (delivery.task, delivery.attempts[0].outcome) == ("delayed", outcome)
    await app.close()


async def test_nobody_there_and_no_such_name(memory: App, receiver: Receiver) -> None:
    own = await endpoints(memory)
    await own.add("http://127.0.0.1:1/", "acme")
    await own.add("http://no-such-name.invalid/", "acme")
    await memory.webhooks.send("invoice.paid", account="acme")
    await run_all(memory)
    shown = await deliveries(memory)
    found = [await shown.show(one.id) for one in (await shown.list()).items]
    assert {one.attempts[0].outcome for one in found} == {"connect", "dns"}
    assert {one.task for one in found} == {"delayed"}


async def test_little_of_a_long_answer_is_read_and_kept(receiver: Receiver) -> None:
    app = make_app("sqlite:///:memory:", log_bytes=100)
    await app.migrate()
    endpoint = await added(app, receiver)
    receiver.answers = [
        Reply(200, {"X-Key": endpoint.secret}, endpoint.secret.encode() + b"\x00\xff" + b"x" * 9_000_000)
    ]
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    delivery = await only(app)
    answer = delivery.attempts[0].response
    assert delivery.state == "completed" and answer["cut"] and len(answer["body"]) <= 200
    assert endpoint.secret not in json.dumps(answer) and answer["headers"]["x-key"] == "•••"
    await app.close()


async def test_what_leads_into_our_network_is_refused_when_it_is_sent(app_url: str, receiver: Receiver) -> None:
    """The endpoint was added while it was allowed, or its name led elsewhere then."""
    app = make_app(app_url)
    await app.migrate()
    await added(app, receiver)
    await app.close()
    app = make_app(app_url, allow_networks=[])
    await app.webhooks.send("invoice.paid", account="acme")
    await run_all(app)
    [task] = await app.failed.list()
    assert task.error_code == "WEBHOOK_ADDRESS_REFUSED" and receiver.got == []
    await app.close()


async def test_proxies_of_the_environment_are_ignored(
    memory: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await added(memory, receiver)
    await memory.webhooks.send("invoice.paid", account="acme")
    await run_all(memory)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "given", [{"event_type": "no spaces"}, {"event_type": ""}, {"event_id": "a.b"}, {"account": ""}]
)
async def test_events_that_cannot_be_sent(memory: App, given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        await memory.webhooks.send(**{"event_type": "a.b", **given})
