"""An application with a past: a store as it looks after a bad night, for tests of all pages and for pictures of them.

``python -m tests.browser.studio FILE.db`` furnishes a file; ``redrive up --app tests.browser.studio:app`` serves it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redrive import App, Context, Fail
from redrive.kernel.alerts.slo import Objective
from redrive.kernel.alerts.thresholds import Limits, Thresholds
from redrive.kernel.operation import Action, Canary
from redrive.kernel.series import Tally
from redrive.observe.logs import TaskLog
from redrive.ops.access import Caller, Role
from redrive.ops.alerts.evaluate import Evaluator
from redrive.ops.failures import parse_filter
from redrive.ops.operations.lifecycle import How
from redrive.settings import Options, load_settings
from tests.browser.catalogue import add_catalogue, furnish_catalogue, with_catalogue
from tests.browser.farm import add_farm, furnish_farm, with_farm

KINDS = ("EPISODE_CUT", "SHOT_RENDER", "SHOT_UPLOAD", "VIDEO_GEN", "VOICE_SYNTH", "SUBTITLE_ALIGN", "THUMBNAIL_MAKE",
         "SCORE_MIX", "RIGHTS_CHECK", "STORYBOARD_DRAW", "NOTIFY_EDITOR", "INVOICE_SEND")  # fmt: skip
BROKEN = {"SHOT_UPLOAD": 6, "VIDEO_GEN": 3, "VOICE_SYNTH": 2, "RIGHTS_CHECK": 2, "INVOICE_SEND": 1}


class ModelOverloaded(Exception):
    """What the model's client raises."""


async def _fail(kind: str, name: str) -> None:
    if kind == "SHOT_UPLOAD":
        raise ConnectionError("the storage did not answer: connection reset by peer")
    if kind == "VIDEO_GEN":
        raise ModelOverloaded("503 from the model: too many requests, try again later")
    if kind == "VOICE_SYNTH":
        raise TimeoutError("no voice within 30 s")
    if kind == "RIGHTS_CHECK":
        raise Fail("SHOT_RIGHTS_MISSING", f"nobody cleared the rights of {name}")
    if kind == "INVOICE_SEND":
        raise KeyError("customer_id")


def make_studio(url: str | None = None) -> App:
    """An application of twelve kinds, five of which fail for good."""
    levels = {"default": Objective(wait_seconds=30.0, target=0.95, days=7)}
    settings = with_catalogue(with_farm(load_settings(url=url).with_values(approvals_above=100, slo=levels)))
    made = App(settings=settings, url=url, name="studio")
    add_farm(made)
    file = made.connections.main.file
    add_catalogue(made, Path.cwd() if file is None else file.parent)
    for kind in KINDS:

        async def run(ctx: Context, name: str, kind: str = kind, **more: Any) -> str:
            await _fail(kind, name)
            return f"{name} is done"

        made.task(kind, max_attempts=1)(run)
    made.periodic(
        "NOTIFY_EDITOR", cron="0 7 * * 1-5", timezone="Europe/Berlin", payload={"name": "digest"}, name="digest"
    )
    made.periodic("THUMBNAIL_MAKE", cron="*/15 * * * *", payload={"name": "all"}, name="thumbnails")
    made.periodic("INVOICE_SEND", cron="0 3 1 * *", payload={"name": "monthly"}, name="invoices")
    return made


app = make_studio(os.environ.get("REDRIVE_URL"))


async def furnish(made: App, file: Path, size: int = 20) -> None:
    """Fills a store: ``size`` times some of each kind, failures of five causes, and everything operators do."""
    await made.store()
    tasks = [
        {"kind": kind, "payload": {"name": f"s-{n:03}", "take": n % 4}, "scope": f"episode-{n % 7}", "queue": "default"}
        for kind in KINDS
        for n in range(size * BROKEN.get(kind, 2))
    ]
    await made.enqueue_many(tasks)
    await _work(made)
    operator = await made.operator(Caller("ann", Role.ADMIN))
    begin = operator.operations.begin
    voices, canary = parse_filter(kind="VOICE_SYNTH"), Canary(5, 80.0)
    await begin(Action.RETRY, voices, reason="the voice farm is back", how=How(20.0, canary))
    outage, fixed = "after the storage outage", "new storage credentials"
    await begin(Action.RETRY, parse_filter(), reason=outage, how=How(50.0, None, True, fixed, True))
    await _work(made, seconds=3)
    await operator.control.pause("kind", "VIDEO_GEN", "the model is overloaded until Monday")
    await operator.schedules.pause("invoices", "the customer table moves")
    await operator.control.set_limit("SHOT_RENDER", concurrency=2)
    for cause in (await operator.causes.list(limit=1)).causes:
        await operator.causes.annotate(
            cause.row.fingerprint, None, note="the bucket's key was rotated", owner="storage"
        )
    await made.enqueue_many(
        [{"kind": "EPISODE_CUT", "payload": {"name": f"r-{n}"}, "queue": "reports"} for n in range(size)]
        + [{"kind": "VIDEO_GEN", "payload": {"name": f"v-{n}"}, "scope": "episode-9"} for n in range(size)]
        + [{"kind": "SCORE_MIX", "payload": {"name": f"m-{n}"}, "delay": 3600} for n in range(size)]
    )
    await furnish_farm(made)
    await furnish_catalogue(made, size)
    _past(file)
    await Evaluator(Limits(Thresholds(failed_for=0, no_worker_for=0)), {}).run(await made.store(), "w1")
    await operator.alerts.silence("failed", "default", span="8h", reason="the bucket is moved tonight")


async def _work(made: App, seconds: float | None = None) -> None:
    options = Options(concurrency=50, stop_when_empty=seconds is None, max_time=seconds)
    await made.worker(await made.store(), options, log=TaskLog(style="off")).run()


def _past(file: Path) -> None:
    """Writes what only time makes: a day of series, and a worker that fell silent an hour ago."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with sqlite3.connect(file, timeout=30) as connection:
        for back in range(1, 24 * 60):
            at = _stored(now - timedelta(minutes=back))
            for queue, kind, share in (
                ("", "", 1.0),
                ("default", "", 1.0),
                ("outbox:catalogue", "", 0.4),
                *(("default", k, 1 / 12) for k in KINDS),
            ):
                tally = _minute(back, share)
                row = ("minute", at, queue, kind, tally.completed, tally.failed, json.dumps(tally.document()))
                connection.execute("insert or ignore into redrive_series values (?, ?, ?, ?, ?, ?, ?)", row)
        seen = _stored(now - timedelta(minutes=47))
        connection.execute(
            "insert into redrive_worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at,"
            " stopping, beat_ms) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ("render-7-4f21", "render-7", 4121, '["default"]', 10, 0, "0.1.0", seen - 9 * 3_600_000_000, seen, 0, 5000),
        )
    connection.close()


def _stored(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def _minute(back: int, share: float) -> Tally:
    """What was counted in one minute: a calm sea with an outage at its shore."""
    wave = 60 + 25 * math.sin(back / 140) + 12 * math.sin(back / 7) + 5 * math.sin(back * 1.7)
    outage = max(0.0, 1 - abs(back - 22) / 12)
    done = round(wave * (1 - 0.8 * outage) * share)
    broken = round(40 * outage * share)
    tally = Tally(started=done + broken, completed=done, failed=broken, samples=1)
    tally.depth = {"queued": round((30 + wave / 2 + 400 * outage) * share), "failed": round(200 * outage * share)}
    tally.oldest = 2 + 60 * outage
    tally.failures = {name: n for name, n in (("network", round(broken * 0.7)), ("timeout", round(broken * 0.3))) if n}
    tally.run[8] += done // 2
    tally.run[9] += done // 3
    tally.run[10 + round(2 * outage)] += done // 10 + 1
    tally.wait[4] += done // 2
    tally.wait[6] += done // 3
    tally.wait[8 + round(4 * outage)] += done // 10 + 1
    return tally


async def main(file: Path) -> None:
    made = make_studio(f"sqlite:///{file}")
    await furnish(made, file, 25)
    await made.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
