"""Failures in Sentry: the real SDK, with a transport that keeps what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.argv import ArgvIntegration
from sentry_sdk.transport import Transport

from redrive import App, Context, Fail
from tests.worker.conftest import MakeApp, drain
from tests.worker.process_handlers import divides

CARD = "".join(str(n) for n in range(4, 12))  # stands in no line of code


class Kept(Transport):
    """Sends nothing, and keeps everything."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events += [event for item in envelope.items if (event := item.get_event()) is not None]


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    transport = Kept()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        transport=transport,
        default_integrations=False,
        integrations=[ArgvIntegration()],
    )
    yield transport.events
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def declare(app: App) -> None:
    @app.task("PAY", max_attempts=2, public=["order"])
    async def pay(ctx: Context, order: int, card: str) -> None:
        number = card * 2
        try:
            raise ValueError(f"card {number} is wrong")
        except ValueError as error:
            raise ConnectionError(f"bank of {card} cannot be reached") from error


async def fail(app: App) -> Any:
    task = await app.enqueue("PAY", {"order": 7, "card": CARD}, trace_id="abc")
    while (await app.get(task.id)).state != "failed":  # type: ignore[union-attr]
        await drain(app)
    return task


async def test_an_event_is_in_the_trace_of_its_task(make_app: MakeApp, sent: list[Any]) -> None:
    """Else all failures of a worker are in one: that of the thread which tells of them."""
    app = make_app(sentry="all")

    @app.task("PAY", max_attempts=2, backoff_base=0)
    async def pay(ctx: Context) -> None:
        raise ConnectionError("refused")

    known = "4bf92f3577b34da6a3ce929d0e0e4736"
    given = (known, f"00-{known}-00f067aa0ba902b7-01", "abc", None)
    tasks = [await app.enqueue("PAY", trace_id=trace_id) for trace_id in given]
    for task in tasks:
        while (await app.get(task.id)).state != "failed":  # type: ignore[union-attr]
            await drain(app)
    found = {task.id.hex: {one["contexts"]["trace"]["trace_id"] for one in sent if _is_of(one, task)} for task in tasks}
    expected = [{known}, {known}, {tasks[2].id.hex}, {tasks[3].id.hex}]
    assert len(sent) == 8 and list(found.values()) == expected
    assert all(len(one["contexts"]["trace"]["span_id"]) == 16 for one in sent)
    assert {one["exception"]["values"][-1]["value"] for one in sent} == {"refused"}, "its type is told beside it"


def _is_of(event: Any, task: Any) -> bool:
    return bool(event["contexts"]["task"]["id"] == str(task.id))


async def test_a_failed_task_is_an_event_with_the_task_as_context(make_app: MakeApp, sent: list[Any]) -> None:
    app = make_app(sentry="failed")
    declare(app)
    task = await fail(app)
    [event] = sent
    about = event["contexts"]["task"]
    assert (about["id"], about["kind"], about["attempt"], about["trace_id"]) == (str(task.id), "PAY", 2, "abc")
    assert about["payload"] == {"order": 7}, "what is public"
    assert event["tags"]["redrive.kind"] == "PAY" and event["level"] == "error"
    types = [value["type"] for value in event["exception"]["values"]]
    assert types == ["ValueError", "ConnectionError"]
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] == "pay" and "vars" not in frames[-1]
    assert "cannot be reached" in event["exception"]["values"][-1]["value"]
    assert CARD not in json.dumps(event, default=str), "the payload stays here"
    assert "sys.argv" not in json.dumps(event, default=str), "a command line may have a URL with a password"
    assert event["fingerprint"] == ["redrive", about["cause"]]


async def test_all_attempts_when_asked_for(make_app: MakeApp, sent: list[Any]) -> None:
    app = make_app(sentry="all")
    declare(app)
    await fail(app)
    assert [(event["level"], event["contexts"]["task"]["attempt"]) for event in sent] == [("warning", 1), ("error", 2)]


async def test_failures_without_an_exception_of_this_process(make_app: MakeApp, sent: list[Any]) -> None:
    app = make_app(sentry="failed")
    app.task("ELSEWHERE", isolation="process", max_attempts=1)(divides)

    @app.task("REFUSED")
    async def refused(ctx: Context) -> Any:
        return Fail("TASK_PRECONDITION_FAILED", "there is no such order")

    await app.enqueue("ELSEWHERE")
    await app.enqueue("REFUSED")
    await drain(app)
    told = {event["contexts"]["task"]["kind"]: event["exception"]["values"][-1] for event in sent}
    assert told["ELSEWHERE"]["type"] == "ZeroDivisionError"
    assert "order" in told["REFUSED"]["value"]


async def test_nothing_is_sent_and_it_is_said_when_sentry_is_not_set_up(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(sentry="failed")
    declare(app)
    await fail(app)
    assert "sentry_sdk.init() was not called" in caplog.text
