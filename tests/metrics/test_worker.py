"""What a worker has counted, as metrics: everything once, and never less than before."""

from __future__ import annotations

from redrive import App, Context, Snooze
from redrive.kernel.series import MOST_SERIES, OTHER, Tally
from redrive.observe.counters import MOST_REASONS, Ends
from redrive.observe.exposition import render
from redrive.observe.metrics import ATTEMPTS, CLAIMED, TABLE
from redrive.observe.samples import Samples, as_json, changed, from_json
from redrive.observe.samples import add as add_samples
from redrive.worker.measure import measure
from redrive.worker.report import Tallies
from redrive.worker.worker import Worker
from tests.metrics.conftest import Labels, parsed, value
from tests.worker.conftest import drain, ended, working


def page_of(worker: Worker) -> dict[str, dict[Labels, float]]:
    body, content_type = render(TABLE, "default", {worker.id: measure(worker)})
    assert content_type.startswith("text/plain")
    return parsed(body.decode())


def declare(app: App) -> None:
    @app.task("SEND", max_attempts=2)
    async def send(ctx: Context, how: str) -> None:
        match how:
            case "connect":
                raise ConnectionError("refused")
            case "later" if ctx.memo is None:
                raise Snooze(0.0, memo={"seen": True})


async def test_attempts_by_outcome_and_reason(app: App) -> None:
    declare(app)
    tasks = [await app.enqueue("SEND", {"how": how}) for how in ("fine", "fine", "connect")]
    async with working(app) as worker:
        for task in tasks:
            await ended(app, task.id)
    page = page_of(worker)
    of = {"worker": worker.id, "queue": "default", "kind": "SEND"}
    assert value(page, "redrive_attempts_total", outcome="completed", reason="", **of) == 2
    assert value(page, "redrive_attempts_total", outcome="retried", reason="connect", **of) == 1
    assert value(page, "redrive_attempts_total", outcome="failed", reason="connect", **of) == 1
    assert value(page, "redrive_attempt_failures_total", type="network", **of) == 2
    assert value(page, "redrive_tasks_claimed_total", **of) == 4
    assert value(page, "redrive_task_wait_seconds_count", **of) == 3
    assert value(page, "redrive_task_run_seconds_count", **of) == 4
    assert value(page, "redrive_task_run_seconds_bucket", le="+Inf", **of) == 4
    assert value(page, "redrive_settle_batch_tasks_sum", worker=worker.id) == 4
    assert value(page, "redrive_store_call_seconds_count", verb="cycle") > 0
    assert value(page, "redrive_store_call_seconds_count", verb="tick") > 0
    assert value(page, "redrive_worker_slots", worker=worker.id) == 5


async def test_a_kind_is_there_before_its_first_task(app: App) -> None:
    declare(app)
    worker = await drain(app)
    claimed = measure(worker)[CLAIMED.name]
    assert claimed["default", "SEND"] == 0
    assert measure(worker)[ATTEMPTS.name]["default", "SEND", "completed", ""] == 0


def test_what_was_seen_once_never_shrinks() -> None:
    tallies = Tallies()
    seen = 0.0
    for _ in range(50):
        tally = tallies.of("q", "A")
        tally.started += 1
        tally.waited(0.0003)
        tally.ran(0.3)
        found = tallies.since_start()["q", "A"]
        assert found.run_ms > seen and found.wait_ms > seen
        seen = found.run_ms
        if sheet := tallies.sheet(now=True):
            assert tallies.since_start()["q", "A"].run_ms == seen
            tallies.sent(sheet)
    assert tallies.since_start()["q", "A"].started == 50
    assert sum(tallies.since_start()["q", "A"].run) == 50


def test_the_501st_kind_is_other() -> None:
    kinds = [f"K{number:03}" for number in range(MOST_SERIES + 20)]
    several = []
    for order in (kinds, kinds[::-1]):
        tallies = Tallies(("q", kind) for kind in order)
        for kind in order:
            tallies.of("q", kind).completed += 1
            sheet = tallies.sheet(now=True)
            tallies.sent(sheet)
        several.append(tallies.since_start())
    assert several[0] == several[1], "whichever came first, the same ones in every process"
    assert several[0]["q", OTHER] == Tally(completed=20)
    assert len(several[0]) == MOST_SERIES + 1


def test_there_are_only_so_many_reasons() -> None:
    ends = Ends()
    for number in range(3 * MOST_REASONS):
        ends.count("q", "A", "failed", f"reason {number}")
    assert len(ends) == MOST_REASONS + 1
    assert ends["q", "A", "failed", OTHER] == 2 * MOST_REASONS
    for number in range(2 * MOST_SERIES):
        ends.count("q", f"K{number}", "failed", "reason 1")
    assert len({(queue, kind) for queue, kind, _, _ in ends}) <= MOST_SERIES + 1


async def test_samples_travel_and_add_up(app: App) -> None:
    declare(app)
    task = await app.enqueue("SEND", {"how": "connect"})
    async with working(app) as worker:
        await ended(app, task.id)
    samples = measure(worker)
    bounds = {metric.name: metric.bounds for metric in TABLE}
    again = from_json(as_json(samples), bounds.get)
    assert changed(again, samples) == {} and changed(samples, again) == {}
    twice: Samples = {}
    for _ in range(2):
        add_samples(twice, samples, lambda name: name == "redrive_task_run_seconds" or name.endswith("_total"))
    page = parsed(render(TABLE, "default", {"w": twice})[0].decode())
    assert value(page, "redrive_task_run_seconds_count", kind="SEND") == 4
    assert value(page, "redrive_tasks_claimed_total", kind="SEND") == 4
    assert "redrive_worker_slots" not in page
