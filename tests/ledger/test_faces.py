"""The same over HTTP, on the command line and in the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.settings import load_settings
from tests.api.conftest import served
from tests.cli.conftest import here, redrive  # noqa: F401 - fixtures
from tests.console.conftest import console, done, page, send, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sqlite_app(tmp_path: Path) -> App:
    app = App(settings=load_settings(url=f"sqlite:///{tmp_path}/redrive.db", log_format="off"))
    await app.migrate()
    return app


async def test_over_http(sqlite_app: App) -> None:
    async with served(sqlite_app) as client:

        async def post(path: str, **body: Any) -> Any:
            return await client.post(f"/api/ledger/accounts{path}", json=body)

        opened = await post("", name="acme", label="Acme Ltd.")
        assert (opened.status_code, opened.json()["available"]) == (201, 0)
        assert (await post("", name="acme")).status_code == 409
        assert (await post("", name="no good")).status_code == 422
        assert (await post("/acme/credit", amount=100, reason="paid", key="k")).json()["available"] == 100
        assert (await post("/acme/credit", amount=100, reason="paid", key="k")).json()["available"] == 100
        assert (await post("/acme/freeze", amount=40, reference="batch:1", reason="asked")).json()["frozen"] == 40
        too_much = await post("/acme/freeze", amount=61, reference="batch:2", reason="asked")
        assert (too_much.status_code, too_much.json()["code"]) == (409, "LEDGER_TOO_LITTLE")
        assert (await post("/acme/capture", reference="batch:1", reason="done", amount=10)).json()["frozen"] == 30
        assert (await post("/acme/release", reference="batch:1", reason="over")).json()["balance"] == 90
        assert (await post("/acme/release", reference="batch:1", reason="over")).status_code == 409
        assert (await post("/acme/adjust", change=-90, reason="closed")).json()["available"] == 0
        get = client.get
        unknown = await get("/api/ledger/accounts/nobody")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "LEDGER_ACCOUNT_UNKNOWN")
        listed = (await get("/api/ledger/accounts?limit=1")).json()
        assert ([one["name"] for one in listed["items"]], listed["next"]) == (["acme"], "acme")
        page = (await get("/api/ledger/accounts/acme/statement?limit=2")).json()
        assert [one["kind"] for one in page["items"]] == ["adjust", "settle"]
        rest = (await get(f"/api/ledger/accounts/acme/statement?before={page['next']}")).json()
        assert [one["kind"] for one in rest["items"]] == ["settle", "freeze", "credit"] and rest["next"] is None
        paid = (await get("/api/ledger/accounts/acme/statement?reference=batch:1")).json()
        assert [(one["kind"], one["frozen"], one["frozenAfter"]) for one in paid["items"]] == [
            ("settle", -30, None),
            ("settle", -10, None),
            ("freeze", 40, None),
        ]
        csv = await get("/api/ledger/accounts/acme/statement.csv")
        assert csv.text.count("\r\n") == 6 and "attachment" in csv.headers["content-disposition"]
        for past in (await get("/api/ledger/accounts/acme/at?time=1h"), await get("/api/ledger/accounts/acme?at=1h")):
            assert (past.json()["available"], past.json()["frozen"]) == (0, 0)
        nothing = {"items": [], "next": None, "unit": "credits"}
        assert (await get("/api/ledger/accounts/acme/freezes")).json() == nothing
        assert (await get("/api/ledger/at-risk")).json() == {**nothing, "frozen": 0, "atRisk": 0}
        verdict = (await get("/api/ledger/verify")).json()
        assert verdict["ok"] and verdict["postings"] == 5
        assert 'redrive_ledger_frozen{connection="default"} 0' in (await get("/metrics")).text


def test_on_the_command_line(redrive: Any) -> None:  # noqa: F811
    assert redrive("migrate").code == 0

    def ledger(*arguments: Any) -> Any:
        return redrive("ledger", *arguments)

    opened = ledger("open", "acme", "--label", "Acme Ltd.")
    assert opened.out == "account acme (Acme Ltd.): 0 credits available, 0 frozen\n"
    assert ledger("credit", "acme", 100, "--reason", "paid").code == 0
    assert ledger("freeze", "acme", 30, "--for", "batch:1", "--reason", "asked").code == 0
    assert ledger("adjust", "acme", "-5", "--reason", "typo").code == 0
    assert "batch:1" in ledger("show", "acme").out
    assert ledger("show", "acme", "--json").json["freezes"][0]["amount"] == 30
    assert "0 credits available, 0 frozen at" in ledger("show", "acme", "--at", "1h").out
    listed = ledger("accounts", "--json").json
    assert [(one["name"], one["available"], one["frozen"]) for one in listed["items"]] == [("acme", 65, 30)]
    assert "acme" in ledger("accounts").out
    for words in (["accounts"], ["freezes", "acme"], ["statement", "acme"]):
        assert "amounts are credits" in ledger(*words).out, words
    assert [one["kind"] for one in ledger("statement", "acme", "--json").json["items"]] == [
        "adjust",
        "freeze",
        "credit",
    ]
    assert "batch:1" in ledger("statement", "acme").out
    assert ledger("statement", "acme", "--csv").out.splitlines()[1].endswith('"100","0","100","0"')
    assert "no money is at risk" in ledger("at-risk").out
    assert ledger("release", "acme", "--for", "batch:1", "--reason", "over").out.startswith("account acme")
    right = ledger("verify")
    assert right.code == 0 and right.out.startswith("the books are right: 4 postings")
    refused = ledger("show", "nobody", "--json")
    assert refused.code == 1 and "redrive ledger open nobody" in json.dumps(refused.error)


def test_books_that_are_wrong_fail_the_command(redrive: Any, here: Path) -> None:  # noqa: F811
    import sqlite3
    from contextlib import closing

    redrive("migrate")
    redrive("ledger", "open", "acme")
    redrive("ledger", "credit", "acme", 5, "--reason", "paid", "--key", "k")
    with closing(sqlite3.connect(here / "redrive.db")) as connection:
        connection.execute("update redrive_account set balance = 6 where name = 'account:acme'")
        connection.commit()
    said = redrive("ledger", "verify")
    assert said.code == 1 and "account account:acme: has 6, and its entries add up to 5" in said.out


async def test_in_the_console(sqlite_app: App) -> None:
    async with console(sqlite_app) as client:
        assert "No account" in text_of(await page(client, "/ledger"))

        async def act(verb: str, back: str = "/ledger/acme", **form: str) -> Any:
            return await send(client, f"/act/ledger.{verb}", form, back)

        async def after(verb: str, back: str = "/ledger/acme", **form: str) -> str:
            return text_of(await done(client, f"/act/ledger.{verb}", form, back))

        opened = await after("open", "/ledger", name="acme", label="Acme Ltd.")
        assert "Account acme (Acme Ltd.): 0 credits available, 0 frozen." in opened
        for _ in range(2):  # a second click
            credited = await after("credit", name="acme", amount="100", reason="paid", once="a")
        assert (
            "100 credits available, 0 frozen." in credited and "100 available 0 frozen 100 credits in all" in credited
        )
        await after("adjust", name="acme", change="-10", reason="typo")
        await after("freeze", name="acme", amount="30", reference="batch:1", reason="asked")
        shown = text_of(await page(client, "/ledger/acme"))
        assert "60 available 30 frozen" in shown and "batch:1" in shown and "-10" in shown
        only = text_of(await page(client, "/ledger/acme?reference=batch:1"))
        assert "for batch:1" in only and "-30 +30" in only and "typo" not in only
        assert "it had 0 available and 0 frozen" in text_of(await page(client, "/ledger/acme?at=1h"))
        assert "60 available 20 frozen" in await after(
            "capture", name="acme", reference="batch:1", amount="10", reason="done"
        )
        assert "80 available 0 frozen" in await after("release", name="acme", reference="batch:1", reason="over")
        assert "+100 by credit:a" in text_of(await page(client, "/ledger/acme"))
        refused = await act("reverse", movement="credit:a", reason="wrong")
        assert refused.status_code == 409 and "this takes 100 back, and nothing was moved" in text_of(refused.text)
        unsaid = await act("credit", name="acme", amount="ten", reason="paid")
        assert unsaid.status_code == 422 and "must be a whole number" in text_of(unsaid.text)
        await after("credit", name="acme", amount="10", reason="paid", once="b")
        undone = await after("reverse", movement="credit:b", reason="wrong")
        assert "80 available" in undone and "reverse" in undone
        assert "The books are right" in text_of(await page(client, "/ledger/verify"))
        assert (await client.get("/ops/queue/ledger/acme/statement.csv")).text.count("\r\n") == 8
        assert (await client.get("/ops/queue/ledger/acme/statement.csv?until=1h")).text.count("\r\n") == 1
        assert "there is no account" in text_of(await page(client, "/ledger/nobody", 404))
