"""A round: what is looked at and what it costs, who is told, and that nobody is told twice."""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from redrive.errors import StoreUnavailable
from redrive.kernel.alerts.book import ENDED_AFTER, Alert, Book, Message
from redrive.kernel.alerts.facts import Answer
from redrive.kernel.alerts.own import OwnRule
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.diagnosis import Level
from redrive.kernel.documents import to_document
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Fail
from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.records import Put
from redrive.kernel.series import Tally, TallySheet, write
from redrive.ops import causes
from redrive.ops.alerts import evaluate, findings, send
from redrive.ops.alerts.evaluate import Evaluator
from redrive.ops.alerts.findings import Watched
from redrive.ops.alerts.look import BOOK, COLLECTION, load
from redrive.ops.alerts.messages import Place, Wording, start_command
from redrive.ops.alerts.own_rules import ask
from redrive.ops.doctor import FOLLOWS, examine
from redrive.settings import Settings, Triage
from redrive_kit.conformance.harness import LEASE, Harness
from tests.alerts.conftest import Listener, MailBox
from tests.conformance.harness_postgres import PostgresHarness
from tests.ops.making import fail, held

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00")
AT_ONCE = Limits(Thresholds(failed_for=0, no_worker_for=0))
HERE = Place("postgresql://db/shop", "web1", "production", "main")
TRIAGE = {"default": Triage("is the warehouse up?", ["the import is late"], ["report"])}


def evaluator(listener: Listener | None = None, limits: Limits = AT_ONCE, **more: Any) -> Evaluator:
    to = {} if listener is None else {"alert_webhook": f"{listener.url}/hook", "alert_slack": f"{listener.url}/slack"}
    settings = Settings(**{**to, **more})
    wording = Wording("https://example.com/operations", HERE, TRIAGE)
    return Evaluator(limits, send.destinations(settings, wording), settings.alert_heartbeat)


async def book(harness: Harness) -> Book:
    return (await load(harness.store, await harness.store.now()))[0]


async def later(harness: Harness, seconds: float) -> None:
    """Lets time pass also for the book, where the harness moves the data and not the clock."""
    before = await harness.store.now()
    await harness.advance(seconds)
    if (await harness.store.now() - before).total_seconds() <= seconds - 1:
        await shift(harness, -seconds)


async def shift(harness: Harness, seconds: float) -> None:
    """Has the book written earlier or later than it was."""
    record, by = await harness.store.record(COLLECTION, BOOK), timedelta(seconds=seconds)
    if record is not None:
        text = ISO.sub(lambda found: (datetime.fromisoformat(found[0]) + by).isoformat(), json.dumps(record.body))
        await harness.store.apply(Commit(puts=[Put(COLLECTION, BOOK, json.loads(text), record.version)]))


async def firing(harness: Harness, limits: Limits = AT_ONCE) -> set[str]:
    await Evaluator(limits, {}).run(harness.store, "w1")
    return {alert.key for alert in (await book(harness)).firing}


async def alive(harness: Harness) -> None:
    await harness.tick("w1")


async def test_a_share_of_more_than_a_thousand_is_found(harness: Harness) -> None:
    """By whether the 1,250th oldest of 2,500 has waited for so long, and not by a count that ends before."""
    half = Limits(Thresholds(pending_share=0.5, no_worker_for=1e6))
    await harness.enqueue_many(1_249)
    await harness.advance(400)
    await harness.enqueue_many(1_251)
    assert "pending:default" not in await firing(harness, half)
    await later(harness, 400)
    assert "pending:default" in await firing(harness, half)


async def test_what_is_broken_in_a_store_fires(harness: Harness) -> None:
    await alive(harness)
    assert await firing(harness) == set()
    await fail(harness)
    await held(harness)
    await later(harness, LEASE)
    await harness.enqueue(queue="reports")
    await later(harness, 901)
    assert await firing(harness) == {"failed:default", "oldest_age:reports", "pending:reports", "no_worker:reports"}
    assert (await book(harness)).counted == {"default": (1, 0), "reports": (0, 1)}
    pending = (await book(harness)).alerts["stuck"]
    assert pending.state == "pending" and pending.level is Level.CRITICAL


async def test_muted_causes_paused_queues_and_kinds_and_delayed_tasks_do_not_fire(harness: Harness) -> None:
    await fail(harness)
    await harness.enqueue("A", queue="reports")
    await harness.enqueue("B", queue="mail")
    await harness.enqueue(queue="later", delay=60 * 86_400)
    await later(harness, 901)
    holds = [(Target.QUEUE, "reports"), (Target.KIND, "B")]
    await harness.store.apply(Commit(controls=[Hold(target, name, on=True, actor="ann") for target, name in holds]))
    [cause] = (await causes.list_causes(harness.store)).causes
    until = await harness.store.now() + timedelta(hours=1)
    await causes.annotate(harness.store, cause.row.fingerprint, actor="ann", muted_until=until)
    assert await firing(harness) == set()
    await causes.annotate(harness.store, cause.row.fingerprint, actor="ann", muted_until=None)
    assert await firing(harness) == {"failed:default"}


async def test_a_surge(harness: Harness) -> None:
    await fail(harness)
    limits = Limits(Thresholds(off=["failed", "no_worker"]))
    for failed, broken in ((20, set()), (1, {"surge:default"})):
        text = write({("default", "A"): Tally(failed=failed)})
        sheet = TallySheet(f"sheet of {failed}", text)
        await harness.store.tick(Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}, sheet=sheet))
        await later(harness, 15)
        assert await firing(harness, limits) == broken


async def test_an_idle_round_costs_one_statement(harness: Harness) -> None:
    one = evaluator()
    await one.run(harness.store, "w1")
    await later(harness, 15)
    async with harness.measure(harness.store) as cost:
        await one.run(harness.store, "w1")
    assert len(cost.statements) == 1, cost.statements


async def test_everybody_is_told_once_also_by_the_next_evaluator(harness: Harness, listener: Listener) -> None:
    await alive(harness)
    await fail(harness)
    for nth in range(3):
        await evaluator(listener).run(harness.store, f"w{nth}")
        await later(harness, 15)
    [told] = listener.bodies("/hook")
    [alert] = told["alerts"]
    assert (told["status"], alert["rule"], alert["queue"], alert["level"]) == ("firing", "failed", "default", "warning")
    assert alert["text"] == "queue default has failed tasks: 1"
    assert alert["runbook"] == "https://example.com/operations#alert-failed"
    assert alert["triage"] == {"look": "is the warehouse up?", "problems": ["the import is late"], "tables": ["report"]}
    [slack] = listener.bodies("/slack")
    assert "queue default has failed tasks: 1" in slack["text"] and "is the warehouse up?" in slack["text"]
    [left] = [(await book(harness)).messages]
    assert not left


async def test_whoever_is_woken_is_told_what_failed_and_where(harness: Harness, listener: Listener) -> None:
    await alive(harness)
    await fail(harness, 2, kind="CHARGE")
    await fail(harness, 3, Fail("TASK_PAYLOAD_INVALID", "no card 4711 of Ann"), kind="SEND")
    await fail(harness, 1, queue="other")
    await evaluator(listener).run(harness.store, "w1")
    [told] = listener.bodies("/hook")
    assert (told["store"], told["host"], told["environment"], told["connection"]) == (
        *("postgresql://db/shop", "web1", "production"),
        "main",
    )
    here = next(one for one in told["alerts"] if one["queue"] == "default")
    first, second = here["detail"].splitlines()
    rows = {one.row.kind: one.row for one in (await causes.list_causes(harness.store)).causes}
    assert first.startswith("SEND: 3 tasks failed (60% of all failed) by ")
    assert second.startswith("CHARGE: 2 tasks failed (40% of all failed) by ")
    assert first.endswith(f"; redrive causes show --connection main {rows['SEND'].fingerprint}")
    [slack] = listener.bodies("/slack")
    assert first in slack["text"] and "production, host web1, connection main, store postgresql:" in slack["text"]
    assert "4711" not in json.dumps(listener.told) and "Ann" not in json.dumps(listener.told)


async def test_causes_that_cannot_be_read_keep_nobody_from_being_told(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> Any:
        raise StoreUnavailable("statement timeout")

    await alive(harness)
    await fail(harness)
    monkeypatch.setattr(causes, "list_causes", broken)
    await evaluator(listener).run(harness.store, "w1")
    [alert] = listener.bodies("/hook")[0]["alerts"]
    assert (alert["rule"], alert["detail"]) == ("failed", "")


async def test_waiting_kinds_and_the_command_that_helps_are_told(harness: Harness, listener: Listener) -> None:
    await harness.enqueue_many(3, "SEND", queue="mail")
    await harness.enqueue_many(1, "PRINT", queue="mail")
    settings = Settings(alert_webhook=f"{listener.url}/hook", workers={"post": {"queues": ["mail"]}})
    to = send.destinations(settings, Wording("docs", HERE, {}))
    starts = partial(start_command, settings, "default", app="shop:app")
    await Evaluator(AT_ONCE, to, starts=starts).run(harness.store, "w1")
    [alert] = listener.bodies("/hook")[0]["alerts"]
    assert alert["detail"] == "waiting: SEND 3, PRINT 1"
    assert alert["fix"] == "redrive work --connection main --app shop:app --group post"
    assert starts("a b") == "redrive work --app shop:app --queue 'a b'"


async def test_a_clock_that_was_ahead_stops_nothing(harness: Harness, listener: Listener) -> None:
    await fail(harness)
    await later(harness, 301)
    await evaluator(listener).run(harness.store, "w1")
    told = len(listener.told)
    await shift(harness, 86_400)
    assert "alerts_stale" in {found.code for found in await examine(harness.store, watched=Watched())}
    await evaluator(listener).run(harness.store, "w2")
    seen = await book(harness)
    assert seen.by == "w2" and seen.at is not None and seen.at <= await harness.store.now()
    assert {alert.key for alert in seen.firing} == {"failed:default"} and len(listener.told) == told
    assert all(alert.fired is not None and alert.fired <= seen.at for alert in seen.firing)


async def test_its_end_is_told(harness: Harness, listener: Listener) -> None:
    await alive(harness)
    [task] = await fail(harness)
    await evaluator(listener).run(harness.store, "w1")
    await harness.operate(Event.CANCEL, task)
    for seconds in (15, 15, ENDED_AFTER.total_seconds()):
        await later(harness, seconds)
        await alive(harness)
        await evaluator(listener).run(harness.store, "w2")
    first, second = listener.bodies("/hook")
    assert (first["status"], second["status"]) == ("firing", "resolved")
    was = r"ended after \d+ s; it was: queue default has failed tasks: 1"
    assert re.fullmatch(was, second["alerts"][0]["text"])
    told = listener.bodies("/slack")[1]["text"].splitlines()
    assert re.fullmatch(f"resolved: {was}", told[0]) and len(told) == 2, told
    assert second["alerts"][0]["resolvedAt"] and second["alerts"][0]["key"] == first["alerts"][0]["key"]


async def test_whoever_evaluates_at_the_same_time_tells_nobody(harness: Harness, listener: Listener) -> None:
    await fail(harness)
    seen = await harness.store.figures()

    class Stale:
        """A store as somebody saw it who was slower."""

        def __getattr__(self, name: str) -> Any:
            return getattr(harness.store, name)

        async def figures(self) -> Any:
            return seen

    await evaluator(listener).run(harness.store, "w1")
    await evaluator(listener).run(Stale(), "w2")  # type: ignore[arg-type]
    assert len(listener.bodies("/hook")) == 1


async def test_what_could_not_be_sent_is_sent_later(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(send, "PAUSES_S", (0.0,))
    await fail(harness)
    listener.status = 503
    own = evaluator(listener, alert_slack=None)
    with caplog.at_level(logging.WARNING, "redrive.alerts"):
        await own.run(harness.store, "w1")
    assert len(listener.told) == 2 and [one.to for one in (await book(harness)).messages] == [("webhook",)]
    assert "HTTP 503" in caplog.text and listener.url not in caplog.text
    listener.status = 200
    await later(harness, 15)
    await own.run(harness.store, "w1")
    assert len(listener.told) == 2, "somebody may be at it still"
    await later(harness, 60)
    await evaluator(listener, alert_slack=None).run(harness.store, "w2")
    assert len(listener.told) == 3 and not (await book(harness)).messages
    assert len({body["id"] for _, body in listener.told}) == 1, "a receiver knows it again"


async def test_a_destination_that_hangs_holds_up_nobody(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight messages wait for it, and a new alert fires: the others hear of it in the same round."""
    monkeypatch.setattr(send, "PAUSES_S", ())
    tried, sent = [], list[str]()

    def hangs(message: Message) -> None:
        tried.append(message.id)
        raise send.NotSent("no answer in time")

    to = {"slack": hangs, "webhook": lambda message: sent.append(message.id)}
    await fail(harness)
    await Evaluator(AT_ONCE, to).run(harness.store, "w1")
    first = await book(harness)
    [waiting] = first.messages
    assert waiting.to == ("slack",)
    many = [replace(waiting, id=f"m{n}", next_at=waiting.at) for n in range(8)]
    record = await harness.store.record(COLLECTION, BOOK)
    assert record is not None
    body = to_document(replace(first, messages=many))
    await harness.store.apply(Commit(puts=[Put(COLLECTION, BOOK, body, record.version)]))
    await harness.enqueue(queue="reports")
    tried.clear()
    sent.clear()
    await later(harness, 15)
    await Evaluator(AT_ONCE, to).run(harness.store, "w1")
    assert len(sent) == 1 and tried == sent, "the new one, and nothing else of what waits"
    assert sorted(one.to for one in (await book(harness)).messages) == [("slack",)] * 9


async def test_a_round_does_not_wait_for_all_tries_of_a_destination_that_hangs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next round begins when this one has ended: what fires meanwhile would be told late, to everybody."""
    monkeypatch.setattr(evaluate, "TOLD_WITHIN_S", 0.3)
    answered = threading.Event()
    tries, sent = list[str](), list[str]()

    def hangs(message: Message) -> None:
        tries.append(message.id)
        answered.wait(60)

    try:
        await fail(harness)
        to = {"slack": hangs, "webhook": lambda message: sent.append(message.id)}
        await Evaluator(AT_ONCE, to).run(harness.store, "w1")
        [waiting] = (await book(harness)).messages
        assert sent == [waiting.id] and waiting.to == ("slack",)
        assert tries == [waiting.id], "a try of its own is given up after 10 s, and there would be three"
    finally:
        answered.set()


async def test_data_is_not_told_with_an_error(harness: Harness) -> None:
    if not isinstance(harness, PostgresHarness):
        pytest.skip("SQLite quotes none")
    fault = (await ask(harness.store, "select '4111-secret'::integer")).fault
    assert fault is not None and "invalid input syntax" in fault and "4111" not in fault
    assert "nowhere" in str((await ask(harness.store, "select nowhere")).fault)


async def test_what_cannot_be_sent_for_an_hour_is_given_up_and_doctor_says_so(harness: Harness) -> None:
    await alive(harness)
    now = await harness.store.now()
    old = Message("1", now - timedelta(hours=2), now - timedelta(hours=2), ("webhook",), ())
    left = to_document(Book(at=now - timedelta(seconds=20), messages=[old]))
    await harness.store.apply(Commit(puts=[Put(COLLECTION, BOOK, left)]))
    await Evaluator(AT_ONCE, {}).run(harness.store, "w1")
    assert not (await book(harness)).messages
    assert "alerts_not_sent" in {finding.code for finding in await examine(harness.store)}


async def test_whatever_goes_wrong_with_one_destination_the_others_are_told(
    harness: Harness, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "PAUSES_S", ())
    await fail(harness)
    settings = {"alert_email": "ann@example.com", "alert_from": "two\nlines", "alert_smtp": "smtp://127.0.0.1:1"}
    await evaluator(listener, **settings).run(harness.store, "w1")
    assert len(listener.bodies("/hook")) == len(listener.bodies("/slack")) == 1
    assert [one.to for one in (await book(harness)).messages] == [("email",)]


async def test_redirects_are_not_followed(listener: Listener) -> None:
    listener.status, listener.location = 302, f"{listener.url}/elsewhere"
    with pytest.raises(send.NotSent, match="HTTP 302"):
        send.call(f"{listener.url}/hook", {})
    assert [where for where, _ in listener.told] == ["/hook"]


async def test_the_heartbeat_is_called_each_round(harness: Harness, listener: Listener) -> None:
    own = evaluator(alert_heartbeat=f"{listener.url}/beat")
    for _ in range(3):
        await own.run(harness.store, "w1")
        await later(harness, 15)
    assert len(listener.bodies("/beat")) == 3


async def test_doctor_says_the_same_words(harness: Harness) -> None:
    await alive(harness)
    await fail(harness)
    await harness.enqueue(queue="reports")
    await later(harness, 901)
    await alive(harness)
    await evaluator().run(harness.store, "w1")
    said = {finding.text: finding.level for finding in await examine(harness.store)}
    unserved = next(text for text in said if text.startswith("no live worker serves queue reports"))
    for alert in (await book(harness)).firing:
        if alert.rule in FOLLOWS and alert.queue == "reports":
            assert alert.rule in unserved and alert.text not in said, "one trouble, one line"
        elif alert.text not in unserved:
            assert said[alert.text] is alert.level
    texts = [finding.text for finding in await examine(harness.store)]
    assert len(set(texts)) == len(texts)
    await later(harness, 600)
    await harness.tick("w1")
    stale = await examine(harness.store)
    assert "alerts_stale" in {finding.code for finding in stale}
    told = [finding.text for finding in stale if finding.code == "no_worker"]
    assert "failed" in {finding.code for finding in stale}, "it looks itself then"
    assert any(text.endswith("; so also backlog, oldest_age, pending") for text in told), told


async def test_a_broken_chain_fires(harness: Harness) -> None:
    await harness.store.apply(Commit(puts=[Put("audit-seal", "000000000001", {"last": "x"})]))
    assert "audit_chain" in await firing(harness)
    assert "rewritten" in (await book(harness)).alerts["audit_chain"].text


def test_mail(mailbox: MailBox) -> None:
    settings = Settings(alert_email="ann@example.com, bob@example.com", alert_smtp=mailbox.url)
    to = send.destinations(settings, Wording("docs", HERE, TRIAGE))
    now = datetime(2026, 11, 16, tzinfo=UTC)
    alert = Alert("failed", "default", Level.WARNING, "x\ny", 1, now)
    to["email"](Message("1", now, now, ("email",), (alert, replace(alert, queue="b"))))
    [mail] = mailbox.mails
    assert mailbox.said.lower().count("rcpt to:<") == 2
    assert "To: ann@example.com, bob@example.com" in mail
    assert "Subject: [redrive production] warning: x y (and 1 more)" in mail and "is the warehouse up?" in mail


def test_a_mail_server_that_refuses_is_told_by_its_number_alone(mailbox: MailBox) -> None:
    mailbox.refuses = True
    settings = Settings(alert_email="ann@example.com", alert_smtp=mailbox.url)
    to = send.destinations(settings, Wording("docs", HERE, {}))
    now = datetime(2026, 11, 16, tzinfo=UTC)
    with pytest.raises(send.NotSent) as error:
        to["email"](Message("1", now, now, ("email",), (Alert("failed", "", Level.WARNING, "x", 1, now),)))
    assert "ann" not in str(error.value)


def own(query: str, **more: Any) -> dict[str, OwnRule]:
    return {"late_reports": OwnRule("late_reports", query, summary="late reports", threshold=0.2, **more)}


async def test_a_rule_of_an_application_fires_and_is_asked_once_a_minute(harness: Harness) -> None:
    rules = own("select 0.25", level=Level.CRITICAL)
    one = Evaluator(AT_ONCE, {}, own=rules)
    await one.run(harness.store, "w1")
    [alert] = (await book(harness)).firing
    assert (alert.key, alert.level, alert.text) == ("late_reports", Level.CRITICAL, "late reports: 0.25 (> 0.2)")
    await later(harness, 15)
    asked = (await book(harness)).answers
    await one.run(harness.store, "w1")
    assert (await book(harness)).answers == asked, "what was asked a moment ago is not asked again"
    await later(harness, 60)
    await one.run(harness.store, "w1")
    assert (await book(harness)).answers != asked
    [finding] = [f for f in await examine(harness.store, watched=Watched(own=rules)) if f.code == "own_query"]
    assert (finding.text, finding.level) == ("late reports: 0.25; alert at > 0.2", Level.NOTE), "not ok"


async def test_who_does_not_know_a_rule_leaves_its_alert_alone(harness: Harness, listener: Listener) -> None:
    """Applications with other rules and features may share a store; whoever ticks first evaluates."""
    fires, waits = own("select 0.25")["late_reports"], replace(own("select 1", hold=3600)["late_reports"], name="slow")
    to = send.destinations(Settings(alert_webhook=f"{listener.url}/hook"), Wording("", HERE, {}))
    knows, stranger = Evaluator(AT_ONCE, to, own={one.name: one for one in (fires, waits)}), Evaluator(AT_ONCE, to)
    await knows.run(harness.store, "w1")
    before = (await book(harness)).alerts
    for _ in range(5):
        await later(harness, 20)
        await stranger.run(harness.store, "w2")
    found = await book(harness)
    assert [one.key for one in found.firing] == ["late_reports"] and not found.ended
    assert [one.key for one in found.alerts.values() if one.fired is None] == ["slow"], "neither begun anew nor ended"
    assert found.answers.keys() == before.keys()
    assert len(listener.bodies("/hook")) == 1
    for _ in range(20):
        await later(harness, 20)
        await stranger.run(harness.store, "w2")
    assert [one.key for one in (await book(harness)).ended] == ["late_reports"], "nobody has that rule any more"


@pytest.mark.parametrize(
    "query",
    [
        "select 'x'",
        "drop table redrive.task",
        "select 1; select 2",
        "select 9e999",
        "select cast('NaN' as float)",
        "select $1",
        "select '\0'",
    ],
)
async def test_a_query_that_cannot_be_answered_fires(harness: Harness, query: str) -> None:
    await Evaluator(AT_ONCE, {}, own=own(query)).run(harness.store, "w1")
    seen = await book(harness)
    assert seen.at is not None, "the round was written down, whatever the query said"
    if query == "select cast('NaN' as float)" and not seen.firing:
        return  # for SQLite that is 0
    [alert] = seen.firing
    assert alert.text.startswith("late_reports cannot be watched: ") and alert.level is Level.WARNING
    assert await firing(harness) is not None, "the tables are there"


async def test_a_query_has_a_time_limit_and_writes_nothing(harness: Harness) -> None:
    await Evaluator(AT_ONCE, {}, own=own("select null")).run(harness.store, "w1")
    assert (await book(harness)).firing == [], "no answer breaks nothing"
    slow = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    answer = await ask(harness.store, slow, 0.2)
    assert answer.fault and await ask(harness.store, "select 7") == Answer(7.0)
    table = "redrive.task" if isinstance(harness, PostgresHarness) else "redrive_task"
    await harness.enqueue()
    assert (await ask(harness.store, f"delete from {table} returning 1")).fault
    assert (await ask(harness.store, f"select count(*) from {table}")).value == 1


async def test_doctor_answers_the_queries_of_triage_notes(harness: Harness) -> None:
    await alive(harness)
    notes = {"default": Triage(queries={"rows": "select 3"}), "other": Triage(queries={"rows": "select 4"})}
    found = await examine(harness.store, "default", ["default"], watched=Watched(triage=notes))
    assert [finding.text for finding in found if finding.code == "own_query"] == ["queue default, rows: 3"]


async def test_doctor_looks_at_names_once_and_judges_them_beside_the_loop(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of names may be there: what a worker has evaluated is read, and nothing is looked at again for it."""
    await harness.enqueue(queue="mail")
    await evaluator().run(harness.store, "w1")
    asked, judged = list[int](), set[int]()
    look, conditions = harness.store.figures, findings.conditions

    async def figures() -> Any:
        asked.append(1)
        return await look()

    def judge(*given: Any) -> Any:
        judged.add(threading.get_ident())
        return conditions(*given)

    monkeypatch.setattr(harness.store, "figures", figures)
    monkeypatch.setattr(findings, "conditions", judge)
    assert "no_worker" in {one.code for one in await examine(harness.store)}
    assert (asked, judged) == ([], set())
    await shift(harness, -3600)
    assert "alerts_stale" in {one.code for one in await examine(harness.store)}
    assert asked == [1] and judged and threading.get_ident() not in judged
