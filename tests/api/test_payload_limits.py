"""Payloads at their limits, by every way in; and rows past them, in lists that stay readable."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import psycopg
import pytest

from redrive import App
from redrive.cli.main import run
from redrive.errors import PayloadInvalid
from redrive.ops import actions
from tests.api.conftest import served

pytestmark = pytest.mark.anyio
SHAPES = {
    "lists": lambda n: "[" * n + "1" + "]" * n,
    "empty lists": lambda n: "[" * n + "]" * n,
    "objects": lambda n: '{"a":' * n + "1" + "}" * n,
    "empty objects": lambda n: '{"a":' * (n - 1) + "{}" + "}" * (n - 1),
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/limits.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def by_sql(url: str, text: str) -> str | None:
    """Returns why PostgreSQL refuses a payload; None where it takes it."""
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute("select redrive.enqueue('A', %s::jsonb)", (text,))
        except psycopg.errors.InvalidParameterValue as error:
            return str(error)
    return None


async def by_http(client: httpx.AsyncClient, text: str) -> str | None:
    body, headers = f'{{"kind": "A", "payload": {text}}}', {"Content-Type": "application/json"}
    answer = await client.post("/api/tasks", content=body, headers=headers)
    assert answer.status_code in (201, 400, 413, 422), answer.text
    return None if answer.status_code == 201 else answer.text


async def test_a_hundred_levels_and_no_more(tmp_path: Path) -> None:
    app = App(url := f"sqlite:///{tmp_path}/limits.db")
    app.declare("A")
    async with served(app) as client:
        for shape, text_of in SHAPES.items():
            assert [await by_http(client, text_of(levels)) is None for levels in (99, 100, 101)] == [True, True, False]
            await app.enqueue("A", json.loads(text_of(100)))
            with pytest.raises(PayloadInvalid, match="more than 100 levels"):
                await app.enqueue("A", json.loads(text_of(101)))
            for levels in (100, 101):
                code = await asyncio.to_thread(run, ["enqueue", "A", text_of(levels), "--url", url])
                assert (code == 0) is (levels == 100), shape


def test_a_hundred_levels_and_no_more_in_sql(postgres_url: str) -> None:
    for text_of in SHAPES.values():
        refused = [by_sql(postgres_url, text_of(levels)) for levels in (99, 100, 101)]
        assert refused[:2] == [None, None] and "more than 100 levels" in str(refused[2])


LONG = "9" * 4301
NUMBERS = {
    f'{{"n": {LONG[:-1]}}}': True,
    f'{{"n": -{LONG[:-1]}}}': True,
    f'{{"n": {LONG}}}': False,
    f'{{"pad": "{"x" * 9000}", "n": [[-{LONG}]]}}': False,
    f'["{LONG}", 1, "{LONG}"]': True,
    f'["{LONG}\\"", {LONG}]': False,
}


async def test_a_number_that_most_programs_cannot_read(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(url)
    app.declare("A")
    file = tmp_path / "payload.json"
    async with served(app) as client:
        for text, fits in NUMBERS.items():
            file.write_text(text)
            code = await asyncio.to_thread(run, ["enqueue", "A", "--payload-file", str(file), "--url", url])
            refused = [None if code == 0 else capsys.readouterr().err, await by_http(client, text)]
            if url.startswith("postgres"):
                refused.append(by_sql(url, text))
            assert [one is None for one in refused] == [fits] * len(refused), text[:20]
            for one in refused:
                assert one is None or ("has a number of more than 4,300 digits" in one and "pass it as text" in one)


async def test_python_says_it_in_the_same_words(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/limits.db")
    app.declare("A")
    for most in (4300, 0):  # a process may read more than others do
        sys.set_int_max_str_digits(most)
        try:
            with pytest.raises(PayloadInvalid, match="payload has a number of more than 4,300 digits"):
                await app.enqueue("A", {"n": 10**4300})
        finally:
            sys.set_int_max_str_digits(4300)
    await app.close()


async def test_null_is_the_default_in_sql(postgres_url: str) -> None:
    app = App(postgres_url)
    app.declare("A")
    text = "select redrive.enqueue('A', queue => null, priority => null, max_attempts => null, idempotency_key => %s)"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for key in (None, "k"):
            found = connection.execute(text, (key,)).fetchone()
            assert found is not None
            task = await app.get(found[0])
            assert task is not None and (task.queue, task.priority, task.max_attempts) == ("default", 0, 5)
    await app.close()


async def test_one_unreadable_row_does_not_spoil_a_page(postgres_url: str) -> None:
    """A number of 5,001 digits, which a client in Python refuses to read, and times beyond its calendar."""
    app = App(postgres_url)
    app.declare("A")
    good = (await app.enqueue("A", {"digits in text": "7" * 5000})).id
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # As a row from before the limit.
        connection.execute("alter domain redrive.payload drop constraint payload_check")
        found = connection.execute("""select redrive.enqueue('A', '{"n": 1e5000}', scope => 's')""").fetchone()
        assert found is not None
        (bad,) = found
        await actions.cancel(await app.store(), [bad], actor="ann", reason="odd")
        connection.execute("select redrive.enqueue('A', '{}', scope => 's')")
        for name, column in (("task", "created_at"), ("history", "created_at"), ("audit", "at")):
            connection.execute(f"update redrive.{name} set {column} = '20000-01-01' where scope = 's'")
    async with served(app) as client:
        tasks = {task["id"]: task for task in json.loads((await client.get("/api/tasks")).text)["tasks"]}
        one = json.loads((await client.get(f"/api/tasks/{bad}")).text)
        whole = json.loads((await client.get(f"/api/tasks/{bad}/payload")).text)
        log = json.loads((await client.get("/api/tasks/audit-logs")).text)["items"]
    unreadable = {"unreadable": "it has a number of more than 4,300 digits"}
    assert len(tasks) == 3 and tasks[str(good)]["payload"] == {"digits in text": "7" * 5000}
    assert tasks[str(bad)]["payload"] == unreadable and whole == unreadable and one["task"]["payload"] == unreadable
    assert {row["at"][:4] for row in log} == {"9999"} and tasks[str(bad)]["createdAt"].startswith("9999")


def test_digits_in_texts_beside_many_numbers(postgres_url: str) -> None:
    """Each part is quick; the check of both together took the server an hour: it asked all numbers for each long run of
    digits. The bound stands for that, not for a speed."""
    long_texts = {"s": "1" * 500_000, '2"\\3' + "7" * 5000: "\\" + "8" * 5000, "a": [1] * 160_000}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("set statement_timeout = '60s'")
        enqueue = "select redrive.enqueue('A', %s::jsonb)"
        connection.execute(enqueue, [json.dumps(long_texts)])
        texts, number = json.dumps({"s": "1" * 5000})[:-1], "1" * 4300
        connection.execute(enqueue, [f'{texts}, "n": {number}}}'])
        for wrong in (f"{number}1", f"-0.{number}1"):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="number of more than 4,300 digits"):
                connection.execute(enqueue, [f'{texts}, "n": {wrong}}}'])
