"""Real processes: how ``up`` and ``work`` start, answer, stop and die."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from redrive.cli.support.signals import ONE_STOP_S

APP = "redrive_kit.examples.shots:app"


def test_the_installed_command_into_a_pipe_that_closes() -> None:
    command = os.path.join(os.path.dirname(sys.executable), "redrive")
    said = subprocess.run(f"{command} migrate --sql | head -n 1", shell=True, capture_output=True, text=True)
    assert (said.stdout.count("\n"), said.stderr) == (1, "")


def test_up_without_a_worker_serves_http_alone(start, redrive) -> None:
    up = start("up", "--app", APP, "--port", 0, "--no-worker", "--json")
    facts = up.document()
    assert (facts["worker_id"], facts["queues"], facts["concurrency"]) == (None, [], 0)
    assert httpx.get(f"{facts['http']}/readyz").status_code == 200
    assert httpx.get(f"{facts['http']}/healthz").json()["worker"] is None
    assert redrive("workers", "--json").json["items"] == [], "nobody takes tasks"
    while "evaluated" not in (told := redrive("alerts").out) or "nobody" in told:
        time.sleep(0.1)
    assert "ago by up-" in told, "without workers, too, alerts are evaluated"
    up.process.send_signal(signal.SIGTERM)
    assert up.ends() == 0
    refused = redrive("up", "--no-worker", "--concurrency", 3)
    assert refused.code == 2 and "--no-worker" in refused.err


def test_up_serves_works_and_stops(start, redrive) -> None:
    up = start("up", "--app", APP, "--demo", "--port", 0, "--queue", "default,defalt", "--json")
    up.log("queue.unknown")
    facts = up.document()
    assert facts["app"] == APP and facts["concurrency"] == 10 and facts["migrated"]
    health = httpx.get(f"{facts['http']}/healthz").json()
    assert (health["status"], health["worker_id"]) == ("ok", facts["worker_id"])
    up.log("task.failed")
    failed = redrive("list", "--state", "failed", "--json").json["items"]
    assert {task["kind"] for task in failed} <= {"SHOT_PUBLISH", "VIDEO_GEN"} and failed
    # The slow demo task is cancelled, so that stopping does not wait for it.
    [render] = redrive("list", "--kind", "SHOT_RENDER", "--json").json["items"]
    redrive("cancel", render["id"])
    up.process.send_signal(signal.SIGTERM)
    up.log("worker.stopped")
    assert up.ends() == 0


def test_up_says_what_to_try_next(start, here) -> None:
    """Only what can be enqueued as it is: A needs a payload."""
    tasks = '@app.task("A")\nasync def a(ctx, n: int): ...\n@app.task("B")\nasync def b(ctx, n: int = 1): ...\n'
    (here / "picky.py").write_text(f"from redrive import App\napp = App()\n{tasks}")
    up = start("up", "--port", 0, "--app", "picky", "--url", "sqlite:///other.db", REDRIVE_DEV="1")
    lines = []
    for line in up.process.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            break
    text = "".join(lines)
    assert "http://127.0.0.1:" in text
    assert "./dev redrive enqueue --url sqlite:///other.db --app picky:app B\n" in text and " A\n" not in text
    up.process.send_signal(signal.SIGINT)
    assert up.ends() == 0


def test_up_names_a_port_that_is_taken_and_addresses_it_refuses(redrive) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = redrive("up", "--port", port)
        assert said.code == 1
        assert f"port {port}" in said.err and "--port" in said.err
    outside = redrive("up", "--port", 0, "--host", "0.0.0.0")
    assert outside.code == 1
    assert "0.0.0.0" in outside.err and "tokens" in outside.err and not Path("redrive.db").exists()


def test_a_second_signal_exits_at_once(start, redrive, crash_app: str) -> None:
    redrive("enqueue", "HANG")
    worker = start("work", "--app", crash_app)
    worker.log("task.claimed")
    worker.process.send_signal(signal.SIGTERM)
    worker.log("worker.stopping")
    time.sleep(2 * ONE_STOP_S)
    worker.process.send_signal(signal.SIGTERM)
    worker.log("worker.killed")
    assert worker.ends() == 128 + signal.SIGTERM


def test_a_stop_says_what_runs_and_what_is_handed_back(start, redrive, crash_app: str) -> None:
    for _ in range(2):
        redrive("enqueue", "HANG")
    worker = start("work", "--app", crash_app, "--concurrency", 2, "--id", "w", TASK_WORKER_GRACE_MS="300")
    worker.log("task.claimed")
    worker.log("task.claimed")
    worker.process.send_signal(signal.SIGTERM)
    told = worker.log("worker.stopping")
    assert (told["worker_id"], told["running"], told["kinds"], told["grace_ms"]) == ("w", 2, {"HANG": 2}, 300)
    assert told["message"].startswith("SIGTERM: claiming no more; 2 tasks (2 HANG) still run and have 0.3 s to finish")
    over = worker.log("worker.grace_over")
    assert (over["level"], over["running"], over["kinds"]) == ("warning", 2, {"HANG": 2})
    assert worker.log("task.requeued")["reason"] == "shutdown"
    ended = worker.log("worker.stopped")
    assert (ended["completed"], ended["requeued"]) == (0, 2)
    assert worker.ends() == 0
    waiting = redrive("list", "--json").json["items"]
    assert [(task["state"], task["attempt_count"]) for task in waiting] == [("queued", 0)] * 2


def test_a_stop_also_names_handlers_that_go_on_after_their_transaction(start, redrive, crash_app: str) -> None:
    redrive("enqueue", "TRAIL")
    worker = start("work", "--app", crash_app, TASK_WORKER_GRACE_MS="300")
    worker.log("task.completed")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.log("worker.stopping")["kinds"] == {"TRAIL": 1}
    worker.log("worker.grace_over")
    assert worker.ends() == 0
    assert [task["state"] for task in redrive("list", "--json").json["items"]] == ["completed"]


def test_log_lines_have_one_style(start, redrive, crash_app: str) -> None:
    redrive("enqueue", "OK")
    worker = start("work", "--app", crash_app, "--stop-when-empty")
    _, err = worker.process.communicate(timeout=90)
    lines = err.splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["worker.started", "task.claimed", "task.completed", "worker.stopped"]
    for written in lines:
        line = re.sub(r'"duration_ms":[\d.]+', '"duration_ms":1', written)  # always three decimals: 0.160
        assert line == json.dumps(json.loads(line), separators=(",", ":"))
        assert list(json.loads(line))[:3] == ["at", "level", "event"]


def test_a_demo_that_fails_says_where(redrive, here) -> None:
    (here / "shown.py").write_text("from redrive import App\napp = App()\nasync def demo():\n    1 / 0\n")
    said = redrive("up", "--app", "shown", "--demo", "--port", 0)
    assert said.code == 1
    assert "demo() of shown:app failed: ZeroDivisionError: division by zero" in said.err
    assert "shown.py, line 4" in said.err and "Traceback" not in said.err


def test_a_second_signal_works_while_a_handler_blocks_the_loop(start, redrive, crash_app: str) -> None:
    redrive("enqueue", "BLOCK")
    worker = start("work", "--app", crash_app)
    worker.log("blocking")
    # Two different ones: a signal that is already pending would not be delivered twice.
    worker.process.send_signal(signal.SIGTERM)
    worker.process.send_signal(signal.SIGINT)
    assert worker.ends() in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_a_supervisor_restarts_what_crashes_and_passes_signals_on(start, redrive, crash_app: str) -> None:
    redrive("enqueue", "CRASH")
    supervisor = start("work", "--app", crash_app, "--processes", 2, "--id", "w", "--json")
    seen: set[str] = set()
    # The same name a second time: that child was started again.
    while (name := supervisor.log("worker.started")["worker_id"]) not in seen:
        seen.add(name)
    assert name in ("w-1", "w-2")
    # It goes back at once, and may crash the next ones; while that goes on, one may crash as it is asked to stop.
    while redrive("stats", "--json").json["totals"]["failed"] == 0:
        time.sleep(0.2)
    supervisor.process.send_signal(signal.SIGTERM)
    out, _ = supervisor.process.communicate(timeout=90)
    assert supervisor.process.returncode == 0
    assert re.search(r'"restarts": [123]\b', out)


def test_workers_end_with_their_supervisor_or_when_they_are_done(start, redrive, crash_app: str) -> None:
    """They are told the URL where others cannot read it."""
    where = ("--app", crash_app, "--url", "sqlite:///told.db")
    for _ in range(4):
        redrive("enqueue", "OK", *where)
    done = start("work", *where, "--stop-when-empty", "--processes", 2, "--concurrency", 2)
    assert done.ends() == 0
    assert redrive("stats", "--url", "sqlite:///told.db", "--json").json["totals"]["completed"] == 4
    redrive("enqueue", "OK", *where)
    supervisor = start("work", *where, "--processes", 2)
    supervisor.log("task.completed")
    children = psutil.Process(supervisor.process.pid).children()
    assert len(children) == 2 and not any("told.db" in " ".join(child.cmdline()) for child in children)
    supervisor.process.kill()
    _, alive = psutil.wait_procs(children, timeout=90)
    assert not alive


def test_a_run_that_was_woken_by_http_ends_with_its_server(start, redrive, crash_app: str) -> None:
    """What it holds goes back to the queue, and uses no attempt."""
    secret = "a-secret-of-this-test"
    up = start(
        "up", "--app", crash_app, "--port", 0, "--json", INTERNAL_WORKER_SECRET=secret, TASK_WORKER_GRACE_MS="300"
    )
    http = up.document()["http"]
    made = redrive("enqueue", "HANG", "--queue", "other", "--json").json["id"]
    caller = threading.Thread(target=_call, args=(f"{http}/api/worker/run", secret, {"queues": ["other"]}))
    caller.start()
    ends = time.monotonic() + 30
    while redrive("show", made, "--json").json["task"]["state"] != "running":
        assert time.monotonic() < ends
    up.process.send_signal(signal.SIGTERM)
    assert up.ends() == 0
    caller.join()
    task = redrive("show", made, "--json").json["task"]
    assert (task["state"], task["attempt_count"]) == ("queued", 0)


def _call(url: str, secret: str, body: object) -> None:
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(url, json=body, headers={"Authorization": f"Bearer {secret}"}, timeout=60)


@pytest.mark.parametrize(("command", "code"), [("work", 0), ("list", -signal.SIGTERM)])
def test_a_stop_before_anything_is_imported(command: str, code: int) -> None:
    """What serves has stopped in order; of what does not, nobody knows how far it has come."""
    stop_at_import = (
        "import os, signal, sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'redrive.cli.main': os.kill(os.getpid(), signal.SIGTERM)\n"
        f"sys.argv = ['redrive', {command!r}]\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from redrive.cli.entry import main\n"
        "assert not any(name.startswith('redrive.cli.support') for name in sys.modules)\n"
        "main()\n"
    )
    assert subprocess.run([sys.executable, "-c", stop_at_import], timeout=60).returncode == code
