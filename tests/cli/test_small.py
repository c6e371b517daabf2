"""Small things: files for their owner only, times at the end of the calendar, names that are taken."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive import App, Context, Fail
from redrive.kernel.commit import Commit
from redrive.kernel.reads import CauseQuery
from redrive.kernel.records import Put
from redrive.observe.logs import TaskLog
from redrive.ops import causes
from redrive.settings import Options
from tests.cli.conftest import Said


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def fail_one(url: str) -> str:
    app = App(url)

    @app.task("SEND", max_attempts=1)
    async def send(ctx: Context) -> None:
        raise Fail("TASK_PRECONDITION_FAILED", "no")

    store = await app.store()
    await app.enqueue("SEND")
    await app.worker(store, Options(stop_when_empty=True), log=TaskLog(style="off")).run()
    [row] = await store.causes(CauseQuery(1))
    # As another version, or another hand, may have left it.
    body = {"muted_until": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC).isoformat()[:-6] + "-12:00"}
    await store.apply(Commit(puts=[Put(causes.COLLECTION, row.fingerprint, body)]))
    await app.close()
    return row.fingerprint


def test_a_mute_until_the_end_of_time(here: Path, redrive: Callable[..., Said]) -> None:
    fingerprint = asyncio.run(fail_one(f"sqlite:///{here}/x.db"))
    url = ("--url", f"sqlite:///{here}/x.db")
    for command in (
        ["causes", *url],
        ["causes", "--json", *url],
        ["causes", "show", fingerprint, *url],
        ["doctor", *url],
        ["stats", *url],
    ):
        said = redrive(*command)
        assert "Traceback" not in said.err and said.code in (0, 1), said.err
    assert "9999" in redrive("causes", "show", fingerprint, *url).out
    for span in ("99999999999999999999d", "5000d"):
        said = redrive("causes", "mute", fingerprint, span, *url)
        assert said.code == 2 and "must be" in said.err, said.err


def test_files_are_for_their_owner(here: Path, redrive: Callable[..., Said]) -> None:
    url = ("--url", f"sqlite:///{here}/own.db")
    assert redrive("migrate", *url).code == 0
    assert redrive("pause", "--queue", "default", "--by", "ann", *url).code in (0, 1, 2)
    assert mode(here / "own.db") == 0o600
    assert redrive("audit", "export", str(here / "audit.jsonl"), *url).code == 0
    assert mode(here / "audit.jsonl") == 0o600


def test_audit_rows_are_asked_for_by_time(here: Path, redrive: Callable[..., Said]) -> None:
    url = ("--url", f"sqlite:///{here}/own.db")
    assert redrive("migrate", *url).code == 0
    assert redrive("pause", "--queue", "default", "--by", "ann", "--reason", "deploy", *url).code == 0
    assert "QUEUE_PAUSE" in redrive("audit", "--since", "1h", *url).out
    assert "no such audit rows" in redrive("audit", "--since", "2h", "--until", "1h", *url).out
    assert redrive("audit", "export", "--since", "1h", *url).out.count("QUEUE_PAUSE") == 1
    assert redrive("audit", "export", "--until", "2020-01-01T02:30", *url).out == ""
    assert redrive("audit", "--since", "half past two", *url).code == 2


@pytest.mark.anyio
async def test_log_and_shared_memory_of_a_store_are_too(here: Path) -> None:
    app = App(f"sqlite:///{here}/wal.db")
    await app.store()
    await app.enqueue("SYSTEM_HEALTH_CHECK")
    assert {path.name: mode(path) for path in here.glob("wal.db*")} == {
        "wal.db": 0o600,
        "wal.db-wal": 0o600,
        "wal.db-shm": 0o600,
    }
    await app.close()


def test_a_mode_that_somebody_chose_stays(here: Path, redrive: Callable[..., Said]) -> None:
    (here / "shared.db").touch()
    (here / "shared.db").chmod(0o660)
    assert redrive("migrate", "--url", f"sqlite:///{here}/shared.db").code == 0
    assert mode(here / "shared.db") == 0o660


@pytest.mark.parametrize("name", ["System", "redrive:retention"])
def test_reserved_names(here: Path, redrive: Callable[..., Said], name: str) -> None:
    url = ("--url", f"sqlite:///{here}/names.db")
    assert redrive("migrate", *url).code == 0
    made = redrive("tokens", "create", name, "--by", "ann", *url)
    assert made.code == 2 and "redrive itself uses" in made.err
    by = redrive("tokens", "create", "ann", "--by", name, *url)
    assert by.code == 2 and "redrive itself uses" in by.err


def test_a_name_in_several_scripts(here: Path, redrive: Callable[..., Said]) -> None:
    url = ("--url", f"sqlite:///{here}/names.db")
    assert redrive("migrate", *url).code == 0
    by = redrive("tokens", "create", "bob", "--by", "\N{CYRILLIC SMALL LETTER A}nn", *url)
    assert by.code == 2 and "several scripts: cyrillic, latin" in by.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TASK_WORKER_CONCURRENCY", "many"),
        ("TASK_WORKER_KIND_CONCURRENCY", '{"A":1,"A":2}'),
        ("REDRIVE_CONFIG", "no.toml"),
    ],
)
def test_a_wrong_setting_is_a_wrong_value(
    here: Path, redrive: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    said = redrive("stats", "--url", f"sqlite:///{here}/names.db")
    assert said.code == 2 and name in said.err


def test_an_account_with_a_taken_name(
    here: Path, redrive: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "app")
    url = ("--url", f"sqlite:///{here}/account.db")
    assert redrive("migrate", *url).code == 0
    assert redrive("tokens", "create", "ann", *url).code == 0
    assert "os:app" in redrive("tokens", *url).out


def test_a_misspelt_setting_is_said_once_on_stderr(
    redrive: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive("migrate")
    monkeypatch.setenv("REDRIVE_URLS", "sqlite:///other.db")
    told = redrive("list")
    assert told.err == "warning: REDRIVE_URLS is set and is no setting of redrive; did you mean REDRIVE_URL?\n"
    assert redrive("list", "--json").err == ""
