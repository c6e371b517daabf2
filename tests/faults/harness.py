"""What fault tests share: worker processes whose log can be waited for, and the books that must balance at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import psutil
import psycopg

from redrive import App, Task
from redrive.kernel.task import State
from redrive.settings import load_settings
from tests.commands import Forked
from tests.faults import fault_app, runner

ROOT = Path(__file__).parents[2]
PATIENCE = 50.0  # less than the leases that must not be what helps
Event = dict[str, Any]


def _stands_still(pid: int) -> bool:
    """Whether all threads of a process have stopped: a signal is sent before it has reached them."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state == "T" for state in states)


def until(condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """Look until it is so. For facts that nobody announces; whatever is logged is awaited by ``wait_for``."""
    give_up = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise AssertionError(f"still not so after {timeout:g} s: {what}")
        time.sleep(0.02)
    return found


def runs(pid: int) -> bool:
    """Is there a process of this id that is not merely waiting to be buried?"""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class ForkedWorker(Forked):
    """A worker forked from a process that has imported everything."""

    def __init__(self, given: dict[str, Any], environment: dict[str, str], log: Path) -> None:
        os.mkfifo(log)
        super().__init__(runner.run_forked, given, environment, str(log))
        self._log = log

    def open_log(self) -> IO[str]:
        return self._log.open()


class Started(subprocess.Popen[str]):
    """A worker started by its command line."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def open_log(self) -> IO[str]:
        assert self.stderr is not None
        return self.stderr


class WorkerProcess:
    """A worker in a process of its own, its log lines read as they come."""

    def __init__(self, name: str, process: ForkedWorker | Started) -> None:
        self.name = name
        self.events: list[Event] = []
        self._news = threading.Condition()
        self.process = process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self.process.open_log() as log:
            self._take(log)

    def join_log(self) -> None:
        self._reader.join(10)

    def _take(self, log: IO[str]) -> None:
        for line in log:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "raw", "text": line.rstrip()}
            with self._news:
                self.events.append(event)
                self._news.notify_all()
        with self._news:
            self.events.append({"event": "end"})
            self._news.notify_all()

    def wait_for(
        self, event: str, *, count: int = 1, since: int = 0, timeout: float = PATIENCE, **fields: Any
    ) -> list[Event]:
        """Block until the log has ``count`` such events (after position ``since``)."""

        def found() -> list[Event]:
            return self.logged(event, since=since, **fields)

        with self._news:
            done = self._news.wait_for(lambda: len(found()) >= count or self._ended(event), timeout)
            if not done or len(found()) < count:
                raise AssertionError(f"{self.name} did not log {count} x {event} {fields}; it logged:\n{self.tail()}")
            return found()

    def _ended(self, event: str) -> bool:
        return event != "end" and bool(self.events) and self.events[-1]["event"] == "end"

    def logged(self, event: str, *, since: int = 0, **fields: Any) -> list[Event]:
        wanted = {name: str(value) if isinstance(value, UUID) else value for name, value in fields.items()}
        return [
            found
            for found in self.events[since:]
            if found["event"] == event and all(found.get(k) == v for k, v in wanted.items())
        ]

    @property
    def mark(self) -> int:
        return len(self.events)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(json.dumps(event) for event in self.events[-lines:])

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9; returns when it is dead."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self, timeout: float = PATIENCE) -> int:
        """SIGTERM; answers the exit code."""
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = PATIENCE) -> int:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; it logged:\n{self.tail()}") from None
        self._reader.join(timeout)
        return code

    @property
    def health(self) -> Event:
        """The counters of a worker that has ended."""
        return self.wait_for("worker.health")[-1]

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


class World:
    """One store, its application, and the workers of one test."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.postgres = url.startswith("postgresql")
        self.workers: list[WorkerProcess] = []
        self.app = App(url, settings=load_settings(url=url))
        # The same kinds as the workers have, on this test's store.
        self.app.registry = fault_app.app.registry
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TASK_WORKER", "REDRIVE", "FAULT", "PG"))},
            "REDRIVE_URL": url,
            "REDRIVE_LOG": "json",
            "REDRIVE_APP": "tests.faults.fault_app:app",
            "FAULT_DIR": str(directory),
            "FAULT_PARENT": str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "TASK_WORKER_LEASE_MS": "2000",
            "TASK_WORKER_INTERVAL_MS": "200",
            "TASK_WORKER_GRACE_MS": "2000",
        }
        with contextlib.closing(sqlite3.connect(directory / "effects.db")) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute(fault_app.SCHEMA)

    # -- workers ---------------------------------------------------------------------------------------------------

    def worker(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        constants: dict[str, Any] | None = None,
        skew: float = 0,
        env: dict[str, str] | None = None,
        ready: bool = True,
        **options: Any,
    ) -> WorkerProcess:
        """Start one. ``ready`` waits until it has beaten once, so that nothing of what follows is its start-up."""
        given = {"options": {"sleep": 0.2, **options}, "constants": constants or {}, "skew": skew}
        label = name or f"w{len(self.workers) + 1}"
        environment = self._environment(label, {**(env or {}), **({"REDRIVE_URL": url} if url else {})})
        if skew:  # a clock has to be wrong from the first import on
            command = [sys.executable, "-m", "tests.faults.runner", json.dumps(given)]
            return self._started(label, Started(command, environment), ready)
        return self._started(label, ForkedWorker(given, environment, self.directory / f"{label}.log"), ready)

    def cli_worker(
        self, *arguments: str, name: str | None = None, env: dict[str, str] | None = None, ready: bool = True
    ) -> WorkerProcess:
        """``redrive work``, as an operator starts it."""
        label = name or f"w{len(self.workers) + 1}"
        command = [sys.executable, "-m", "redrive.cli", "work", "--sleep", "0.2", *arguments]
        return self._started(label, Started(command, self._environment(label, env or {})), ready)

    def _environment(self, label: str, given: dict[str, str]) -> dict[str, str]:
        return {**self.environment, "TASK_WORKER_ID": label, **given}

    def _started(self, label: str, process: ForkedWorker | Started, ready: bool) -> WorkerProcess:
        worker = WorkerProcess(label, process)
        self.workers.append(worker)
        if ready:
            self.wait_alive(worker)
        return worker

    def wait_alive(self, worker: WorkerProcess) -> None:
        def beaten() -> bool:
            if worker.process.poll() is not None:
                raise AssertionError(f"{worker.name} ended with {worker.process.returncode}:\n{worker.tail()}")
            return bool(self.sql(f"select 1 from {self.table('worker')} where id = '{worker.name}'"))

        until(beaten, f"{worker.name} beats")

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)  # its handlers' processes too, whatever became of the worker
            worker.process.kill()
            worker.process.wait(10)
            worker.join_log()
        asyncio.run(self.app.close())

    # -- tasks -----------------------------------------------------------------------------------------------------

    def enqueue(self, kind: str, payload: Any = None, **options: Any) -> Task:
        return self.app.sync.enqueue(kind, payload, **options)

    def enqueue_many(self, kind: str, count: int, **options: Any) -> list[UUID]:
        tasks = self.app.sync.enqueue_many([{"kind": kind, **options} for _ in range(count)])
        return [task.id for task in tasks]

    def get(self, task: Task | UUID) -> Task:
        found = self.app.sync.get(task.id if isinstance(task, Task) else task)
        assert found is not None, f"{task} is not found"
        return found

    def wait_state(self, task: Task | UUID, *states: State, timeout: float = PATIENCE) -> Task:
        give_up = time.monotonic() + timeout
        while (found := self.get(task)).state not in states:
            if time.monotonic() > give_up:
                logs = "\n".join(f"--- {w.name}\n{w.tail(30)}" for w in self.workers)
                raise AssertionError(f"the task is still {found.state}, not {states}; {found}\n{logs}")
            time.sleep(0.02)
        return found

    def wait_completed(self, ids: Iterable[UUID], timeout: float = PATIENCE) -> None:
        self.wait_all(ids, {"completed"}, timeout)

    def wait_all(self, ids: Iterable[UUID], states: set[str], timeout: float = PATIENCE) -> None:
        wanted = {str(task_id) for task_id in ids}
        give_up = time.monotonic() + timeout
        while left := [(i, s) for i, s in self.states().items() if i in wanted and s not in states]:
            if time.monotonic() > give_up:
                logs = "\n".join(f"--- {w.name}\n{w.tail(30)}" for w in self.workers)
                raise AssertionError(f"{len(left)} of {len(wanted)} tasks are not {states}: {left[:5]}\n{logs}")
            time.sleep(0.05)

    def open(self, name: str = "all") -> None:
        (self.directory / f"go-{name}").touch()

    def expire_lease(self, task: Task) -> None:
        """As if the lease had run out: moves its end into the past, nothing else."""
        past = str(int((time.time() - 0.001) * 1_000_000))
        when = "clock_timestamp() - interval '1 ms'" if self.postgres else past
        self.sql(f"update {self.table('task')} set lease_expires_at = {when} where id = '{task.id}'")

    def timeline(self, task: Task | UUID) -> Any:
        async def look() -> Any:
            return await (await self.app.store()).timeline(task.id if isinstance(task, Task) else task)

        return self.app.sync._portal.call(look())

    # -- the books -------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask the store's database directly."""
        if self.postgres:
            with psycopg.connect(self.url, autocommit=True) as connection:
                cursor = connection.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
        with contextlib.closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            return connection.execute(text).fetchall()

    def freeze(self, worker: WorkerProcess) -> None:
        """SIGSTOP, at a moment when it holds no lock of SQLite: nobody could write until it goes on."""
        for _ in range(100):
            worker.send(signal.SIGSTOP)
            until(lambda: _stands_still(worker.process.pid), "it stands still")
            if self.postgres or self.writable():
                return
            worker.send(signal.SIGCONT)
            time.sleep(0.02)
        raise AssertionError("it was always caught writing")

    def writable(self) -> bool:
        """Whether somebody else can write to the SQLite file at this moment."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return False
            connection.execute("rollback")
            return True

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def table(self, name: str) -> str:
        """A table or view of redrive's, by its name in this store."""
        return f"redrive.{name}" if self.postgres else f"redrive_{name}"

    def states(self) -> dict[str, str]:
        rows = self.sql(f"select id, state from {self.table('v_tasks')}")
        assert len({row[0] for row in rows}) == len(rows), "a task is in two places"
        return {str(_uuid(task_id)): str(state) for task_id, state in rows}

    def effects(self, what: str | None = None) -> list[tuple[str, int, str, int, float]]:
        """(task id, attempt, what, pid, at), in the order they happened."""
        with contextlib.closing(sqlite3.connect(self.directory / "effects.db", timeout=60)) as connection:
            rows = connection.execute("select * from effect order by rowid").fetchall()
        return [row for row in rows if what is None or row[2] == what]

    def wait_effect(self, task: Task, what: str, count: int = 1) -> list[Any]:
        def found() -> list[Any]:
            mine = [row for row in self.effects(what) if row[0] == str(task.id)]
            return mine if len(mine) >= count else []

        rows: list[Any] = until(found, f"{count} x {what!r} by {task.kind}")
        return rows

    def account(self, acknowledged: Iterable[UUID], *, handed_back: Counter[str] | None = None) -> Counter[str]:
        """Every acknowledged task is in exactly one place, nobody invented any, no handler ran more often than the
        task has attempts (plus the runs that were handed back), and the totals say what the rows say.

        Answers how many are in each state."""
        ids = {str(task_id) for task_id in acknowledged}
        states = self.states()
        assert set(states) >= ids, f"lost: {sorted(ids - set(states))}"
        assert set(states) <= ids, f"never enqueued: {sorted(set(states) - ids)}"
        self.check_totals()
        attempts = {
            str(_uuid(task_id)): number
            for task_id, number in self.sql(f"select id, attempt_count from {self.table('v_tasks')}")
        }
        runs = Counter(row[0] for row in self.effects("start"))
        finished = Counter(row[0] for row in self.effects("end"))
        for task_id, count in runs.items():
            allowed = attempts[task_id] + (handed_back or Counter())[task_id]
            assert count <= allowed, f"{task_id} ran {count} times with {attempts[task_id]} attempts"
        for task_id in ids:
            if states[task_id] == "completed":
                assert finished[task_id] >= 1, f"{task_id} is completed but never ran to its end"
        return Counter(states.values())

    def check_totals(self) -> None:
        columns = [state.value for state in State]
        kept: Counter[tuple[str, str, str]] = Counter()
        for row in self.sql(f"select queue, kind, {', '.join(columns)} from {self.table('v_counts')}"):
            for state, number in zip(columns, row[2:], strict=True):
                if number:
                    kept[row[0], row[1], state] = int(number)
        real = Counter(
            (queue, kind, str(state))
            for queue, kind, state in self.sql(f"select queue, kind, state from {self.table('v_tasks')}")
        )
        assert kept == real, f"totals {dict(kept)} are not the rows {dict(real)}"
        counted = self.sql(f"select fingerprint, sum(n) from {self.table('v_failed_counts')} group by fingerprint")
        rows = self.sql(
            f"select error_fingerprint, count(*) from {self.table('v_failures')} group by error_fingerprint"
        )
        assert sorted(counted) == sorted(rows), f"failed totals {counted} are not the rows {rows}"


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def handed_back(*workers: WorkerProcess) -> Counter[str]:
    """How often each task was given back without using up its attempt, by what the workers logged."""
    return Counter(
        event["task_id"]
        for worker in workers
        for event in worker.events
        if event["event"] == "task.requeued" and event.get("error_code") is None
    )


@contextlib.contextmanager
def world(url: str, directory: Path) -> Iterator[World]:
    made = World(url, directory)
    try:
        yield made
    finally:
        made.close()
