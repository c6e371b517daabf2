"""Several connections over HTTP and in the console: each by itself, all together, and one that is away."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context, Fail
from redrive.console.regions import connections
from redrive.errors import StoreUnavailable
from redrive.ops.access import Caller, Role
from redrive.ops.sign_in import KNOWN_FOR_S, MOST_KNOWN, KnownCallers
from tests.console.conftest import HOME, console, form_token, page
from tests.metrics.conftest import parsed, value
from tests.proxy import Proxy

pytestmark = pytest.mark.anyio
AWAY = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
FILE = f"""
[connections.main]
url = "sqlite:///main.db"
[connections.insights]
url = "sqlite:///insights.db"
[connections.gone]
url = "{AWAY}"
[routes]
"REPORT_*" = {{connection = "insights", queue = "reports"}}
"""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> App:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(FILE)
    made = App()

    @made.task("REPORT_X", max_attempts=1)
    async def report(ctx: Context) -> None:
        raise Fail("TASK_PRECONDITION_FAILED", "no data")

    made.declare("SEND")
    return made


async def fill(app: App) -> tuple[str, str]:
    """One that waits on main, one that failed on insights."""
    await app.at("insights").migrate()
    sent, report = await app.enqueue("SEND"), await app.enqueue("REPORT_X")
    await app.worker(on="insights", queues="reports", stop_when_empty=True).run()
    return str(sent.id), str(report.id)


async def test_tasks_are_found_and_named_with_their_connection(app: App) -> None:
    async with console(app) as client:
        sent, report = await fill(app)
        for task_id, connection in ((sent, "main"), (report, "insights")):
            assert (await client.get(f"/api/tasks/{task_id}")).json()["task"]["connection"] == connection
        listed = (await client.get("/api/tasks", params={"connection": "insights"})).json()["tasks"]
        assert [(one["id"], one["connection"]) for one in listed] == [(report, "insights")]
        assert [one["id"] for one in (await client.get("/api/tasks")).json()["tasks"]] == [sent]
        made = await client.post("/api/tasks", json={"kind": "REPORT_X"})
        assert (made.status_code, made.json()["connection"], made.json()["queue"]) == (201, "insights", "reports")
        other = await client.post("/api/tasks?connection=main", json={"kind": "REPORT_X"})
        assert other.json()["connection"] == "main"
        again = await client.post(f"/api/tasks/{report}/retry")
        assert (again.status_code, again.json()["state"]) == (200, "queued")
        wrong = await client.get("/api/tasks", params={"connection": "insigths"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "CONNECTION_UNKNOWN")
        every = await client.get("/api/tasks", params={"connection": "all"})
        assert every.status_code == 422 and every.json()["detail"] == "a request is about one connection, not about all"
        assert "main, insights, gone" in every.json()["hint"]
        missing = await client.get("/api/tasks/0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b")
        assert (missing.status_code, missing.json()["code"]) == (503, "STORE_UNAVAILABLE"), "it may be on the one away"


async def test_all_connections_with_one_away(app: App) -> None:
    async with console(app) as client:
        await fill(app)
        found = (await client.get("/api/connections")).json()
        assert (found["totals"]["queued"], found["totals"]["failed"]) == (1, 1)
        told = {one["name"]: (one["ok"], one["default"], one["code"]) for one in found["connections"]}
        assert told == {
            "main": (True, True, None),
            "insights": (True, False, None),
            "gone": (False, False, "STORE_UNAVAILABLE"),
        }
        doctor = (await client.get("/api/doctor")).json()
        told = {(one["connection"], one["code"]) for one in doctor["findings"]}
        assert (
            doctor["worst"] == "critical" and ("gone", "CONNECTION_AWAY") in told and ("insights", "failures") in told
        )
        one = (await client.get("/api/doctor", params={"connection": "main"})).json()
        assert {finding["connection"] for finding in one["findings"]} == {"main"}
        first = await page(client)
        assert "connection gone cannot be looked at" in first and "Nothing is wrong" not in first
        ready = await client.get("/readyz")
        assert ready.status_code == 200, "only the default one makes it unready"
        stores = {one["name"]: one["ok"] for one in ready.json()["dependencies"]}
        assert stores == {"store": True, "store:insights": True, "store:gone": False}


async def test_the_metrics_of_each_connection_are_its_own(app: App) -> None:
    async with console(app) as client:
        await fill(app)
        page = parsed((await client.get("/metrics")).text)
        up = {name: value(page, "redrive_fleet_up", connection=name) for name in ("main", "insights", "gone")}
        assert up == {"main": 1, "insights": 1, "gone": 0}
        assert value(page, "redrive_fleet_tasks", connection="main", queue="default", state="queued") == 1
        assert value(page, "redrive_fleet_tasks", connection="insights", queue="reports", state="failed") == 1


async def test_a_page_is_about_one_connection_and_so_is_its_form(app: App) -> None:
    async with console(app) as client:
        _, report = await fill(app)
        first = await page(client)
        assert "All connections" in first and ">away<" in first and f'href="{HOME}/@insights"' in first
        insights = await page(client, "/@insights")
        assert "redrive causes show --connection insights" in insights, "what mends it is about the same one"
        failures = await page(client, "/@insights/failures")
        assert f'href="{HOME}/@insights/tasks' in failures and f'action="{HOME}/failures' not in failures
        text = await page(client, f"/@insights/tasks/{report}")
        action = re.search(rf'action="({HOME}/@insights/tasks/{report})"', text)
        assert action, "its form acts where the page looked"
        fields = {"csrf": form_token(text), "back": f"{HOME}/@insights/tasks", "do": "retry", "reason": "there is data"}
        seen = re.search(r'name="seen" value="([^"]*)"', text)
        answer = await client.post(action[1], data={**fields, "seen": seen[1] if seen else ""})
        assert answer.status_code == 303, answer.text[:1000]
        assert answer.headers["location"].startswith(f"{HOME}/@insights/")
        assert (await app.get(report)).state == "queued"
        await page(client, f"/tasks/{report}", 404)
        assert "there is no connection" in await page(client, "/@nowhere", 404)
        await page(client, "/@gone", 503)


async def test_what_is_live_is_of_the_same_connection(app: App) -> None:
    async with console(app) as client:
        await fill(app)

        async def totals(home: str) -> str:
            async with client.stream("GET", f"{HOME}{home}/live?topics=overview") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data:"):
                        regions: dict[str, Any] = json.loads(line.removeprefix("data:"))["regions"]
                        return str(regions["#totals"])
            raise AssertionError("nothing was told")

        assert f'href="{HOME}/@insights/failures"><b>1</b>' in await totals("/@insights")
        assert f'href="{HOME}/failures"><b>0</b>' in await totals("")


async def test_the_table_of_all_is_live(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "EVERY_S", 0.1)
    async with console(app) as client:
        await fill(app)
        assert 'data-live="menu,overview,connections,' in await page(client)
        async with asyncio.timeout(90), client.stream("GET", f"{HOME}/live?topics=connections") as stream:
            tables = tables_of(stream)
            first = await anext(tables)
            assert ">away<" in first and "<b>1</b>" in first and "<b>2</b>" not in first
            await app.enqueue("REPORT_X")  # on another connection than the page's
            while "<b>2</b>" not in await anext(tables):
                pass


async def tables_of(stream: Any) -> AsyncIterator[str]:
    """Yields what the table of connections becomes."""
    async for line in stream.aiter_lines():
        if line.startswith("data:") and (found := json.loads(line[5:]).get("regions")):
            yield found["#connections"]


async def test_who_was_let_in_looks_at_others_while_the_default_one_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied_url: str, postgres_url: str, proxy: Proxy
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("redrive.ops.sign_in.ANSWER_S", 0.3)
    (tmp_path / "redrive.toml").write_text(
        f'[connections.main]\nurl = "{proxied_url}"\n[connections.insights]\nurl = "sqlite:///insights.db"\n'
    )
    app, direct = App(), App(postgres_url)
    await app.at("insights").migrate()
    tokens = (await direct.operator(Caller("ann", Role.ADMIN))).tokens
    bob, eve = await tokens.create("bob", Role.VIEWER), await tokens.create("eve", Role.OPERATOR)
    as_bob, as_eve = ({"Authorization": f"Bearer {one.secret}"} for one in (bob, eve))
    async with console(app, open_door=True) as client:
        signed = await client.post(f"{HOME}/sign-in", data={"token": bob.secret, "next": HOME})
        assert signed.status_code == 303, signed.text[:500]
        await page(client, "/@insights/failures")
        at_insights = {"connection": "insights"}
        assert (await client.get("/api/tasks", params=at_insights, headers=as_bob)).status_code == 200
        for outage in (proxy.refuse, proxy.black_hole):
            outage()
            if outage == proxy.refuse:
                proxy.cut()
            await page(client, "/@insights/failures")
            assert (await client.get("/api/tasks", params=at_insights, headers=as_bob)).status_code == 200
            denied = await client.post("/api/tasks?connection=insights", json={"kind": "X"}, headers=as_bob)
            assert denied.status_code == 403, "he is a viewer still"
            if outage == proxy.refuse:
                unknown = await client.get("/api/tasks", params=at_insights, headers=as_eve)
                assert unknown.status_code == 503, "she was not here before"
                nobody = await client.get("/api/tasks", params=at_insights)
                assert nobody.status_code == 401, "the door stays closed"
            proxy.restore()
        await tokens.revoke(bob.id)
        for _ in range(600):  # until the pool has noticed that the wire is back
            answer = await client.get("/api/tasks", params=at_insights, headers=as_bob)
            if answer.status_code == 401:
                break
            await asyncio.sleep(0.1)
        assert answer.status_code == 401
        proxy.refuse()
        proxy.cut()
        assert (await client.get("/api/tasks", params=at_insights, headers=as_bob)).status_code == 503
        proxy.restore()
    await direct.close()


def test_who_is_known_is_known_for_a_while() -> None:
    now, here = [0.0], Caller("ann", Role.VIEWER, "t")

    async def there() -> Caller | None:
        return here

    async def away() -> Caller | None:
        raise StoreUnavailable("gone")

    async def look() -> None:
        known = KnownCallers(lambda: now[0])
        assert await known.check("s", there) == here
        now[0] = KNOWN_FOR_S - 1
        assert await known.check("s", away) == here
        now[0] = KNOWN_FOR_S
        with pytest.raises(StoreUnavailable):
            await known.check("s", away)
        for number in range(MOST_KNOWN + 1):
            await known.check(str(number), there)
        with pytest.raises(StoreUnavailable):
            await known.check("0", away)
        assert await known.check("1", away) == here
        assert "s" not in repr(known._known.keys()).split("'"), "by a hash alone"

    asyncio.run(look())


async def test_with_one_connection_nothing_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alone = App("sqlite:///alone.db")
    alone.declare("SEND")
    async with console(alone) as client:
        made = await client.post("/api/tasks", json={"kind": "SEND"})
        assert "connection" not in made.json()
        assert "onnections" not in await page(client)
        names = [one["name"] for one in (await client.get("/readyz")).json()["dependencies"]]
        assert names == ["store"]
        await page(client, "/@default", 404)
