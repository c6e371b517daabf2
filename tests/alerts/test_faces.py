"""Alerts by command, over HTTP and in the console: looked at by everybody, silenced by operators, with an end."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.errors import ConfigError
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Level
from redrive.kernel.records import Put
from redrive.ops.alerts.evaluate import Evaluator
from redrive.settings import load_settings
from tests.alerts.conftest import Listener
from tests.api.conftest import served
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.console.conftest import HOME, console, done, fail_some, make_app, page, send, text_of

AT_ONCE = Limits(Thresholds(failed_for=0))
TEXT = "queue default has failed tasks: 2"


async def broken(app: App) -> None:
    """Two tasks are failed, and it was noticed."""
    await fail_some(app, 2)
    await Evaluator(AT_ONCE, {}).run(await app.store(), "w1")


@pytest.fixture
def app(tmp_path: Path) -> App:
    return make_app(f"sqlite:///{tmp_path}/alerts.db")


async def test_over_http(app: App) -> None:
    async with served(app) as client:
        assert (await client.get("/api/alerts")).json() == {
            "worst": "ok",
            "stale": False,
            "evaluatedAt": None,
            "evaluatedBy": None,
            "lost": None,
            "firing": [],
            "pending": [],
            "resolved": [],
            "silences": [],
        }
        await broken(app)
        found = (await client.get("/api/alerts")).json()
        [alert] = found["firing"]
        assert (found["worst"], alert["text"], alert["key"], alert["state"]) == (
            "warning",
            TEXT,
            "failed:default",
            "firing",
        )
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        wanted = {"rule": "failed", "queue": "default", "until": until, "reason": "known", "actor": "ann"}
        assert (await client.post("/api/alerts/silences", json=wanted)).status_code == 201
        found = (await client.get("/api/alerts")).json()
        assert found["worst"] == "ok" and found["firing"][0]["silence"]["reason"] == "known"
        over = {"rule": "failed", "queue": "default", "actor": "ann"}
        assert (await client.post("/api/alerts/silences/end", json=over)).status_code == 204
        assert (await client.post("/api/alerts/silences/end", json=over)).status_code == 404
        assert (await client.get("/api/alerts")).json()["silences"] == []
        rows = await (await app.store()).audit(AuditFilter(), limit=50)
        told = [(row.actor, row.action, row.target) for row in rows if row.action.startswith("ALERT_")]
        assert told == [("ann", f"ALERT_{what}", "alert:failed:default") for what in ("UNSILENCE", "SILENCE")]


async def test_a_silence_that_cannot_be(app: App) -> None:
    now = datetime.now(UTC)
    async with served(app) as client:
        for wrong in (
            {"rule": "fialed"},
            {"queue": "nowhere"},
            {"until": "2020-01-01T00:00:00Z"},
            {"until": (now + timedelta(days=31)).isoformat()},
            {"until": None},
            {"reason": "two\nlines"},
            {"reason": None},
        ):
            given = {"rule": "failed", "reason": "known", "until": (now + timedelta(hours=1)).isoformat(), **wrong}
            answer = await client.post("/api/alerts/silences", json=given)
            assert answer.status_code in (400, 404, 422), answer.text
        assert (await client.get("/api/alerts")).json()["silences"] == []


async def test_in_the_console(app: App) -> None:
    async with console(app) as client:
        assert '<div id="alert-banner" aria-live="polite"></div>' in await page(client, "/tasks")
        await broken(app)
        for path in ("", "/tasks", "/audit", "/alerts"):
            assert TEXT in text_of(await page(client, path)), path
        said = await done(
            client,
            "/act/alerts.silence",
            {"rule": "failed", "queue": "default", "span": "8h", "reason": "known"},
            "/alerts",
        )
        assert "failed:default is silenced until" in said and "known" in text_of(said)
        assert TEXT not in text_of(await page(client, "/tasks")), "the banner is quiet"
        said = await done(client, "/act/alerts.unsilence", {"rule": "failed", "queue": "default"}, "/alerts")
        assert "failed:default is not silenced any more." in said
        assert TEXT in text_of(await page(client, "/tasks"))
        night = {"rule": "failed", "span": "8h", "until": "08:00", "reason": "known"}
        said = await done(client, "/act/alerts.silence", night, "/alerts")
        assert " 08:00 UTC" in said and '<span class="tag silenced">' in said and "muted" not in said
        wrong = await send(client, "/act/alerts.silence", {**night, "until": "at eight"}, "/alerts")
        assert wrong.status_code == 422 and "is no time" in wrong.text
        refused = await client.post(f"{HOME}/act/alerts.silence", data={"rule": "failed", "span": "1h"})
        assert refused.status_code in (400, 403)


def test_by_command(redrive: Any, here: Path) -> None:  # noqa: F811
    url = ("--url", f"sqlite:///{here}/a.db")
    redrive("migrate", *url)
    assert redrive("alerts", *url).code == 0
    redrive("enqueue", "VIDEO_GEN", "--max-attempts", 1, *url)
    assert redrive("work", "--stop-when-empty", "--app", "redrive_kit.examples.shots:app", *url).code == 0
    (here / "redrive.toml").write_text('[alerts.thresholds."*"]\nfailed_for = 0\n')

    async def look() -> None:
        app = App(url[1])
        await Evaluator(app.settings.alerts.limits, {}).run(await app.store(), "w1")
        await app.close()

    asyncio.run(look())
    said = redrive("alerts", *url)
    assert said.code == 1 and "queue default has failed tasks: 1" in said.out
    assert redrive("alerts", "--json", *url).json["firing"][0]["rule"] == "failed"
    assert "queue default has failed tasks: 1" in redrive("doctor", *url).out
    assert redrive("alerts", "silence", "failed", *url).code == 2, "it has an end"
    for span in ("long", "8", "0"):
        said = redrive("alerts", "silence", "failed", "--for", span, "--reason", "x", *url)
        assert said.code == 2 and "write 30s, 5m, 8h or 7d" in said.err, span
    done_ = redrive("alerts", "silence", "failed", "--for", "8h", "--reason", "known", "--by", "ann", *url)
    assert done_.code == 0 and "silenced until" in done_.out
    said = redrive("alerts", *url)
    assert said.code == 0 and "silenced by ann" in said.out and "known" in said.out
    assert redrive("alerts", "unsilence", "failed", *url).code == 0
    assert redrive("alerts", *url).code == 1


def test_thresholds_are_read_with_those_of_all_queues(here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text(
        '[alerts.thresholds."*"]\ndepth = 7\n[alerts.thresholds.reports]\noldest_age = 60\n'
    )
    limits = load_settings().alerts.limits
    assert (limits.of("x").depth, limits.of("reports").depth, limits.of("reports").oldest_age) == (7, 7, 60)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alerts.thresholds.reports]\ndeepth = 1", "REDRIVE_ALERTS.thresholds.reports.deepth: .*did you mean depth"),
        ("[alerts.thresholds.reports]\ndepth = -1", "REDRIVE_ALERTS.thresholds.reports: depth must be"),
        (
            "[alerts.thresholds.reports]\ndepth = 'x'",
            "REDRIVE_ALERTS.thresholds.reports.depth: it has to be a whole number",
        ),
        ("[alerts.thresholds.reports]\noff = ['fialed']", "thresholds.reports.off: .*did you mean failed"),
        ("[alerts.thresholds]\nreports = 5", "thresholds.reports: it has to be a table"),
        ("[alerts.mine]\nquery = ''", "REDRIVE_ALERTS.mine.query: it is needed"),
        ("[alerts.mine]\nquery = 'x'\nfor = 'long'", "mine.for: it is no span"),
        ("[alerts.mine]\nquery = 'x'\nop = '~'", "mine.op: it is one of"),
        ("[alerts.mine]\nquery = 'x'\nlimit = 5", "mine.limit: .*not known"),
        ("[alerts.failed]\nquery = 'x'", "failed: it is the name of a rule"),
        ("redrive_alert_webhook = 'http://u:secret@x/'", "REDRIVE_ALERT_WEBHOOK: a login in an address is not sent"),
        ("redrive_alert_heartbeat = 'http://[secret/'", "REDRIVE_ALERT_HEARTBEAT: it is no address that begins"),
        ("redrive_alert_smtp = 'smtp://u:[secret@h:587'", "REDRIVE_ALERT_SMTP: it is no address like smtp://"),
        ("redrive_alert_smtp = 'smtp://u:secret@h:x'", "REDRIVE_ALERT_SMTP: it is no address like smtp://"),
        ("redrive_alert_webhook = 'ftp://secret@x'", "REDRIVE_ALERT_WEBHOOK: it is no address that begins with http"),
        ("redrive_alert_email = 'ann'", "REDRIVE_ALERT_EMAIL: these are no mail addresses"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(text: str, said: str, here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        load_settings()
    assert re.search(r"redrive\.toml, line \d", str(error.value)) and "secret" not in str(error.value)


def test_a_rule_of_an_application_is_read(here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text(
        "[alerts.late_reports]\nquery = 'select 0.3'\nthreshold = 0.2\nfor = '5m'\nlevel = 'critical'\nsummary = 'x'\n"
    )
    [own] = load_settings().alerts.own.values()
    assert (own.hold, own.level, own.broken(0.3), own.broken(0.2)) == (300, Level.CRITICAL, True, False)


def test_nobody_evaluates_any_more(redrive: Any, here: Path) -> None:  # noqa: F811
    app = make_app(f"sqlite:///{here}/old.db")
    asyncio.run(broken(app))
    said = redrive("alerts", "--url", app.url, "--json")
    assert said.code == 1 and said.json["stale"] is False
    assert redrive("alerts", "silence", "failed", "--for", "2h", "--reason", "known", "--url", app.url).code == 0
    assert redrive("alerts", "--url", app.url).code == 0
    assert len(redrive("alerts", "--url", app.url, "--json").json["silences"]) == 1
    asyncio.run(back_by_minutes(app, 4))
    said = redrive("alerts", "--url", app.url)
    assert said.code == 1 and "nobody evaluates the rules any more" in said.out
    told = redrive("alerts", "--url", app.url, "--json").json
    assert (told["worst"], told["stale"]) == ("warning", True)


async def back_by_minutes(app: App, minutes: int) -> None:
    """Makes the last round be so long ago."""
    store = await app.store()
    [record] = [one for one in await store.records("alert", limit=10) if one.id == "book"]
    at = (await store.now() - timedelta(minutes=minutes)).isoformat()
    await store.apply(Commit(puts=[Put("alert", "book", {**record.body, "at": at}, record.version, record.state)]))
    await app.close()


def test_all_connections_by_one_command(redrive: Any, here: Path) -> None:  # noqa: F811
    (here / "redrive.toml").write_text(
        "[connections.main]\nurl = 'sqlite:///main.db'\n[connections.other]\nurl = 'sqlite:///other.db'\n"
    )
    assert redrive("migrate").code == 0
    said = redrive("alerts")
    assert said.code == 0 and said.out.split("\n")[0] == "main" and "\nother\n" in said.out
    assert redrive("alerts", "--json").json["connections"].keys() == {"main", "other"}
    assert "other" not in redrive("alerts", "--connection", "main").out
    (here / "other.db").unlink()
    said = redrive("alerts")
    assert said.code == 1 and "cannot be looked at" in said.out


def test_a_rule_of_an_application_belongs_to_a_connection(here: Path) -> None:  # noqa: F811
    text = "[connections.main]\nurl = 'sqlite:///main.db'\n[connections.other]\nurl = 'sqlite:///other.db'\n"
    rules = "[alerts.a]\nquery = 'select 1'\n[alerts.b]\nquery = 'select 1'\nconnection = 'other'\n"
    (here / "redrive.toml").write_text(text + rules)
    settings = load_settings()
    assert [[*settings.own_alerts(name)] for name in (None, "main", "other")] == [["a"], ["a"], ["b"]]
    (here / "redrive.toml").write_text(text + rules.replace("'other'", "'otter'"))
    with pytest.raises(ConfigError, match=r"ALERTS\.b\.connection: there is no connection .otter."):
        load_settings()


async def test_a_message_can_be_sent_by_hand(tmp_path: Path, listener: Listener) -> None:
    to = {"alert_slack": f"{listener.url}/slack", "alert_webhook": f"{listener.url}/hook"}
    app = App(settings=load_settings(url=f"sqlite:///{tmp_path}/alerts.db", log_format="off", **to))
    async with served(app) as client:
        sent = await client.post("/api/alerts/test", json={"actor": "ann"})
        assert sent.json()["destinations"] == [{"name": "webhook", "fault": None}, {"name": "slack", "fault": None}]
        listener.status = 404
        failed = (await client.post("/api/alerts/test")).json()["destinations"]
    assert failed[1] == {"name": "slack", "fault": "it answered with HTTP 404"}
    assert "this is a test by ann: nothing is wrong" in listener.bodies("/slack")[0]["text"]
    rows = await (await app.store()).audit(AuditFilter(action="ALERT_TEST"), limit=10)
    assert [row.after for row in rows] == [{"to": ["slack", "webhook"]}] * 2
    async with console(app) as client:
        said = await done(client, "/act/alerts.test", {}, "/alerts")
    assert "slack: not sent, it answered with HTTP 404" in text_of(said)


def test_a_message_is_sent_by_command(redrive: Any, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    redrive("migrate")
    refused = redrive("alerts", "test")
    assert refused.code == 2 and "REDRIVE_ALERT_SLACK" in refused.err
    monkeypatch.setenv("REDRIVE_ALERT_SLACK", f"{listener.url}/slack")
    assert (redrive("alerts", "test").code, redrive("alerts", "test").out) == (0, "slack: sent\n")
    listener.status = 500
    said = redrive("alerts", "test", "--json")
    assert said.code == 1 and said.json == {"destinations": [{"name": "slack", "fault": "it answered with HTTP 500"}]}
    assert listener.url not in said.out + said.err
