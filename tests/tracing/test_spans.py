"""A task in its trace: from the caller's span over the producer's to that of each attempt."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from redrive import App, Bulk, Context, Fail, Snooze, State
from redrive.kernel.reads import Query
from tests.tracing.conftest import Spans, context, hexed
from tests.worker.conftest import MakeApp, drain, ended

TRACER = trace.get_tracer("the application")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def traced(make_app: MakeApp) -> App:
    return make_app(tracing="on")


async def test_the_span_of_an_attempt_is_a_child_of_the_producers_and_linked_to_it(traced: App, spans: Spans) -> None:
    seen: list[Any] = []

    @traced.task("PAY", queue="money")
    async def pay(ctx: Context, amount: int) -> None:
        seen.append(context(trace.get_current_span()))
        await asyncio.sleep(0)
        seen.append(context(trace.get_current_span()))

    with TRACER.start_as_current_span("checkout") as checkout:
        task = await traced.enqueue("PAY", {"amount": 5})
    await drain(traced, queues=("money",))

    sent, ran = spans.one("enqueue PAY"), spans.one("process PAY")
    assert sent.kind is SpanKind.PRODUCER and ran.kind is SpanKind.CONSUMER
    assert sent.parent is not None and sent.parent.span_id == checkout.get_span_context().span_id
    assert ran.parent is not None and (ran.parent.trace_id, ran.parent.span_id) == context(sent)
    assert [(link.context.trace_id, link.context.span_id) for link in ran.links] == [context(sent)]
    assert seen == [context(ran)] * 2, "the handler's own spans are its children"
    assert task.trace_id == hexed(checkout) == hexed(ran)
    about = dict(ran.attributes or {})
    assert about["messaging.system"] == "redrive" and about["messaging.destination.name"] == "money"
    assert about["messaging.operation.type"] == "process" and about["messaging.message.id"] == str(task.id)
    assert about["redrive.task.kind"] == "PAY" and about["redrive.task.outcome"] == "completed"
    assert ran.status.status_code is StatusCode.UNSET
    said = dict(sent.attributes or {})
    assert said["messaging.operation.type"] == "send" and said["messaging.message.id"] == str(task.id)
    assert not any(value == "5" for value in [*about.values(), *said.values()]), "the payload is nobody's business"


async def test_the_trace_finds_the_task_live_and_finished(traced: App, spans: Spans) -> None:
    @traced.task("PAY")
    async def pay(ctx: Context) -> None: ...

    task = await traced.enqueue("PAY")
    found = hexed(spans.one("enqueue PAY"))
    store = await traced.store()
    for _ in range(2):
        assert [one.id for one in await store.find(Query(trace_id=found))] == [task.id]
        await drain(traced)


async def test_retries_and_an_operators_retry_are_new_spans_with_the_same_link(traced: App, spans: Spans) -> None:
    @traced.task("PAY", max_attempts=2)
    async def pay(ctx: Context, name: str) -> None:
        raise ConnectionError(f"the card of {name} was not accepted")

    task = await traced.enqueue("PAY", {"name": "Jane"})
    await drain(traced)
    while (await traced.get(task.id)).state is not State.FAILED:  # type: ignore[union-attr]
        await drain(traced)
    await traced.retry(task.id, reason="again")
    while len(spans.named("process PAY")) < 4:
        await drain(traced)
    sent, ran = spans.one("enqueue PAY"), spans.named("process PAY")
    assert len({span.get_span_context().span_id for span in ran}) == 4
    assert {(link.context.trace_id, link.context.span_id) for span in ran for link in span.links} == {context(sent)}
    told = [
        ((span.attributes or {})["redrive.task.attempt"], (span.attributes or {})["redrive.task.replays"])
        for span in ran
    ]
    assert told == [(1, 0), (2, 0), (1, 1), (2, 1)]
    for span in ran:
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "ConnectionError"
        assert (span.attributes or {})["redrive.error.reason"] == "connect"
        assert "Jane" not in span.to_json(), "words of data stay here"


async def test_a_cancelled_task_that_is_retried_keeps_its_producer(traced: App, spans: Spans) -> None:
    @traced.task("PAY")
    async def pay(ctx: Context) -> None: ...

    task = await traced.enqueue("PAY", delay=3600)
    await traced.cancel(task.id)
    await traced.retry(task.id)
    await drain(traced)
    [link] = spans.one("process PAY").links
    assert (link.context.trace_id, link.context.span_id) == context(spans.one("enqueue PAY"))


async def test_many_share_one_producer(traced: App, spans: Spans) -> None:
    @traced.task("PAY")
    async def pay(ctx: Context) -> None: ...

    for count in (3, 700):  # the second is sent in parts, and made while it is
        tasks = await traced.enqueue_many([("PAY", None)] * count)
        sent = spans.named("enqueue PAY")[-1]
        assert {task.trace_id for task in tasks} == {hexed(sent)}
        assert (sent.attributes or {})["messaging.batch.message_count"] == count
        assert (sent.attributes or {})["messaging.destination.name"] == "default"
    await drain(traced, concurrency=200)
    assert len(spans.named("process PAY")) == 703
    assert all(span.links for span in spans.named("process PAY"))


async def test_a_bulk_call_is_one_span_with_the_links_of_all(traced: App, spans: Spans) -> None:
    active: list[Any] = []

    @traced.task("INDEX", bulk=10)
    def index(bulk: Bulk) -> None:
        active.append(context(trace.get_current_span()))

    for _ in range(3):
        await traced.enqueue("INDEX")
    await drain(traced)
    ran = spans.one("process INDEX")
    assert {(link.context.trace_id, link.context.span_id) for link in ran.links} == {
        context(span) for span in spans.named("enqueue INDEX")
    }
    assert ran.parent is None and (ran.attributes or {})["messaging.batch.message_count"] == 3
    assert active == [context(ran)]


async def test_threads_see_the_span_and_what_they_enqueue_is_its_child(traced: App, spans: Spans) -> None:
    @traced.task("FIRST")
    def first(ctx: Context) -> None:
        assert threading.current_thread() is not threading.main_thread()
        traced.sync.enqueue("SECOND")

    @traced.task("SECOND")
    async def second(ctx: Context) -> None: ...

    await traced.enqueue("FIRST")
    await drain(traced)
    await drain(traced)
    sent = spans.one("enqueue SECOND")
    assert sent.parent is not None and sent.parent.span_id == context(spans.one("process FIRST"))[1]
    assert hexed(spans.one("process SECOND")) == hexed(spans.one("enqueue FIRST")), "one trace for all of it"


async def test_what_handlers_decide_is_told(traced: App, spans: Spans) -> None:
    @traced.task("POLL")
    async def poll(ctx: Context) -> Any:
        return Snooze(3600)

    @traced.task("REFUSE")
    async def refuse(ctx: Context) -> Any:
        return Fail("TASK_PRECONDITION_FAILED", "no")

    await traced.enqueue("POLL")
    await traced.enqueue("REFUSE")
    await traced.enqueue_many([{"kind": "SYSTEM_HEALTH_CHECK"}])
    await drain(traced)
    assert (spans.one("process POLL").attributes or {})["redrive.task.outcome"] == "snoozed"
    assert spans.one("process POLL").status.status_code is StatusCode.UNSET
    refused = dict(spans.one("process REFUSE").attributes or {})
    assert refused["redrive.task.outcome"] == "failed" and refused["redrive.error.code"] == "TASK_PRECONDITION_FAILED"


async def test_a_handler_that_does_not_stop_leaves_no_open_span(traced: App, spans: Spans) -> None:
    release = threading.Event()

    @traced.task("HANG", timeout=0.05, max_attempts=1)
    def hang(ctx: Context) -> None:
        release.wait(30)

    task = await traced.enqueue("HANG")
    async with traced.worker(await traced.store()):
        await ended(traced, task.id)
        ran = spans.one("process HANG")
        release.set()
    assert (ran.attributes or {})["redrive.error.reason"] == "timeout"
    assert len(spans.named("process HANG")) == 1


async def test_a_traceparent_takes_the_place_of_the_active_span(traced: App, spans: Spans) -> None:
    @traced.task("PAY")
    async def pay(ctx: Context) -> None: ...

    task = await traced.enqueue("PAY", trace_id=PARENT)
    sent = spans.one("enqueue PAY")
    assert task.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736" == hexed(sent)
    assert sent.parent is not None and sent.parent.span_id == 0x00F067AA0BA902B7
    labelled = await traced.enqueue("PAY", trace_id="order-17")
    assert labelled.trace_id == "order-17", "a label of the caller's own stays"


async def test_claims_and_settlements_have_spans_when_asked_for(make_app: MakeApp, spans: Spans) -> None:
    app = make_app(tracing="all")

    @app.task("PAY")
    async def pay(ctx: Context) -> None: ...

    await app.enqueue("PAY")
    await drain(app)
    calls = [span for span in spans.all() if span.kind is SpanKind.CLIENT]
    told = [dict(span.attributes or {}) for span in calls]
    assert sum(int(one["redrive.claimed"]) for one in told) == 1  # type: ignore[arg-type]
    assert sum(int(one["redrive.settled"]) for one in told) == 1  # type: ignore[arg-type]
    assert {one["messaging.operation.type"] for one in told} == {"receive", "settle"}
    assert len(calls) == 2, "looks that find nothing have none"
    assert all(span.parent is None for span in calls)


async def test_schedules_begin_traces_of_their_own(traced: App, spans: Spans) -> None:
    @traced.task("NIGHTLY")
    async def nightly(ctx: Context) -> None: ...

    traced.periodic("NIGHTLY", cron="* * * * *", missed="all")
    store = await traced.store()
    worker = traced.worker(store)
    await worker.prepare()
    from datetime import UTC, datetime, timedelta

    from redrive.kernel.commit import Commit, Declare

    late = [traced.schedules["NIGHTLY"]]
    past = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)
    values = {name: getattr(late[0], name) for name in type(late[0]).__dataclass_fields__} | {
        "next_at": past,
        "name": "N2",
    }
    await store.apply(Commit(controls=[Declare(traced.owner, (type(late[0])(**values),))]))
    with TRACER.start_as_current_span("whoever started the worker"):
        await worker.duties["cron"].run(store, "w", lambda: False)
    [sent] = [span for span in spans.all() if span.name.startswith("enqueue")]
    assert sent.parent is None
    await drain(traced)
    assert {hexed(span) for span in spans.named("process NIGHTLY")} == {hexed(sent)}


async def test_what_features_add_belongs_to_the_active_span(traced: App, spans: Spans) -> None:
    from redrive.handlers.new_task import make_task
    from redrive.kernel.commit import Commit

    new = make_task(traced.registry, "SYSTEM_HEALTH_CHECK")
    with TRACER.start_as_current_span("import") as active:
        await traced.apply(Commit(enqueues=[new]))
    found = await traced.get(new.id)
    assert found is not None and found.trace_id == hexed(active)


async def test_off_writes_nothing_and_reads_nothing(make_app: MakeApp, spans: Spans) -> None:
    app = make_app()

    @app.task("PAY")
    async def pay(ctx: Context) -> None:
        assert ctx.task.trace_parent is None

    with TRACER.start_as_current_span("checkout"):
        task = await app.enqueue("PAY")
    await drain(app)
    found = await app.get(task.id)
    assert found is not None and found.trace_id is None and found.state is State.COMPLETED
    assert [span.name for span in spans.all()] == ["checkout"]


async def test_a_worker_without_tracing_runs_traced_tasks(make_app: MakeApp, spans: Spans) -> None:
    app = make_app()
    seen: list[Any] = []

    @app.task("PAY")
    async def pay(ctx: Context) -> None:
        seen.append((ctx.task.trace_id, ctx.task.trace_parent))

    await app.enqueue("PAY", trace_id=PARENT)
    await app.enqueue("PAY", trace_id=f"{PARENT} vendor=abc")
    await app.enqueue("PAY", trace_id="00-nothing-of-the-kind-01")
    await drain(app)
    trace_id = PARENT.split("-")[1]
    assert sorted(seen, key=str) == sorted(
        [(trace_id, PARENT), (trace_id, f"{PARENT} vendor=abc"), ("00-nothing-of-the-kind-01", None)], key=str
    )
