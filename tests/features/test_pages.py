"""What a feature adds to the console: pages, menu, a panel on a task's page, a live region; and to the API: routes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import httpx
import pytest
from fastapi import APIRouter

from redrive import App
from redrive.api.app import make_api
from redrive.console.feature_pages import FeaturePages, Panel, extensions_of
from redrive.console.navigation import Item, Section
from redrive.console.routes import pages_router
from redrive.errors import ConfigError, InvalidInput
from redrive.kernel.feature import Feature
from redrive.kernel.ports.store import Query
from redrive.kernel.task import Task
from redrive.ops import access
from redrive.ops.access import Role
from redrive.ops.operator import Operator
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.pages import pages as ORDER_PAGES
from redrive_kit.examples.orders.settings import OrderSettings
from tests.console.conftest import HOME, console, done, page, text_of
from tests.features.conftest import ANN, placed
from tests.worker.conftest import drain

HERE = "tests.features.test_pages"


async def parcel(app: App) -> Task:
    (found,) = (await (await app.operator(ANN)).tasks.list(Query(kind="ORDERS_PARCEL"))).tasks
    return found


async def test_its_pages_and_its_place_in_the_menu(app: App) -> None:
    await placed(app, addresses=("nowhere",))
    await drain(app)
    async with console(app) as client:
        listed = await page(client, "/orders")
        assert f'<a href="{HOME}/orders/o1">' in listed and "<h2>Shop</h2>" in listed
        assert 'data-key="x" aria-current="page">Orders<span class="badge" data-badge="orders">' in listed
        assert "1 failed; 1 held" in text_of(await page(client, "/orders/o1"))
        assert "there is no order" in text_of(await page(client, "/orders/o2", 404)), "a page says what is wrong"
        assert "bob has 5 more." in text_of(
            await done(client, "/act/orders.pay_in", {"customer": "bob", "amount": "5"}, "/orders/pay-in")
        )
        assert "ORDERS_KEEP_DAYS" in await page(client, "/settings")
        stolen = await client.post(f"{HOME}/act/orders.pay_in", data={"csrf": "x", "customer": "bob", "amount": "5"})
        assert stolen.status_code == 403


async def test_viewers_are_not_led_where_they_may_not_go(app: App) -> None:
    async with console(app) as client:
        made = await access.create(await app.store(), "vic", Role.VIEWER, actor="ann")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        menu = await page(client, "/orders")
        assert ">Orders<" in menu and ">Pay in</a>" not in menu and ">Settings</a>" not in menu
        await page(client, "/orders/pay-in", 403)


async def test_the_page_of_a_task_says_to_what_it_belongs(app: App) -> None:
    await placed(app)
    await app.enqueue("SYSTEM_HEALTH_CHECK")
    task = await parcel(app)
    assert task.facts == {"order": "o1", "price": 1}
    async with console(app) as client:
        assert "Order o1 : 1 queued; 1 held." in text_of(await page(client, f"/tasks/{task.id}"))
        await drain(app)
        assert "Order o1 : 1 completed; 0 held." in text_of(await page(client, f"/tasks/{task.id}"))
        (other,) = (await (await app.operator(ANN)).tasks.list(Query(kind="SYSTEM_HEALTH_CHECK"))).tasks
        assert 'aria-label="Order"' not in await page(client, f"/tasks/{other.id}")
        assert "facts" not in (await client.get(f"/api/tasks/{task.id}")).text


async def test_a_panel_that_fails_leaves_the_page(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await placed(app)
    task = await parcel(app)

    async def refused(operator: Operator, task: Task) -> Panel:
        raise InvalidInput("<b>no</b> such order")

    async def broken(operator: Operator, task: Task) -> Panel:
        raise ZeroDivisionError

    for make, said in ((refused, "&lt;b&gt;no&lt;/b&gt; such order"), (broken, "could not be shown")):
        monkeypatch.setattr("redrive_kit.examples.orders.pages.pages", replace(ORDER_PAGES, panel=make))
        async with console(app) as client:
            found = await page(client, f"/tasks/{task.id}")
            assert said in found and "Payload and result" in found


async def test_its_region_is_live(app: App) -> None:
    await placed(app)
    async with console(app) as client:
        async with client.stream("GET", f"{HOME}/live?topics=orders") as answer:
            assert "/orders/o1" in (await first_data(answer))["regions"]["#orders"]
        async with client.stream("GET", f"{HOME}/live?topics=menu") as answer:
            told = (await first_data(answer))["regions"]
            assert (told["badge:orders"], told["badge:failed"]) == ("1", "")


async def test_a_number_that_fails_takes_none_away(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(operator: Operator) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("redrive_kit.examples.orders.pages.pages", replace(ORDER_PAGES, number=broken))
    async with console(app) as client, client.stream("GET", f"{HOME}/live?topics=menu") as answer:
        assert (await first_data(answer))["regions"].keys() >= {"badge:orders", "badge:failed"}


async def first_data(answer: httpx.Response) -> dict[str, dict[str, str]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            found: dict[str, dict[str, str]] = json.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the stream ended")


async def test_a_finding_leads_to_its_page(app: App) -> None:
    await placed(app)
    late = App(settings=app.settings.holding(OrderSettings(late_hours=0)), features=[ORDERS])
    async with console(late) as client:
        overview = await page(client)
        assert "order o1 has 1 parcels that do not move" in text_of(overview)
        assert f'<a class="button" href="{HOME}/orders/o1">' in overview


def test_only_who_serves_them_imports_pages_routes_and_commands() -> None:
    code = (
        "import sys; from redrive import App; from redrive_kit.examples.orders import ORDERS\n"
        "app = App('sqlite:///:memory:', features=[ORDERS])\n"
        "lazy = ['redrive_kit.examples.orders.' + name for name in ('pages', 'routes', 'commands')]\n"
        "print([name for name in lazy if name in sys.modules])\n"
        "print('jinja2' in sys.modules, 'fastapi' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split("\n")[:2] == ["[]", "False False"]


ELSEWHERE = FeaturePages(pages_router())
LEADS_AWAY = FeaturePages(pages_router("shop"), Section("Shop", (Item("Audit", "/audit", "Not ours"),)))
HIDES = FeaturePages(pages_router("shop"), topics={"menu": lambda _: ORDER_PAGES.topics["orders"]("")})
OTHER_NUMBER = FeaturePages(pages_router("shop"), Section("Shop", (Item("Shop", "/shop", "It", badge="failed"),)))
SAME_KEY = FeaturePages(pages_router("shop"), Section("See", (Item("Shop", "/shop", "It", key="f"),)))
NO_PAGES = "nothing"
NO_TEMPLATES = FeaturePages(pages_router("shop"))
IN_THE_WAY = APIRouter(prefix="/api/tasks")
AND_MORE = APIRouter(prefix="/api/shopping")
TWO = (APIRouter(prefix="/api/shop"), APIRouter(prefix="/api/worker/shop"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ELSEWHERE", "are below /ops/queue, not /ops/queue/shop"),
        ("LEADS_AWAY", "'Audit' of feature 'shop' leads to /ops/queue/audit"),
        ("HIDES", "topic 'menu' of feature 'shop' is not called shop"),
        ("OTHER_NUMBER", "number beside 'Shop' of feature 'shop' is called 'failed', not 'shop'"),
        ("SAME_KEY", "key 'f' of page 'Shop' is that of 'Failures'"),
        ("NO_PAGES", "is str, not FeaturePages"),
        ("NO_TEMPLATES", "has pages, and redrive_kit.examples.orders no folder templates/shop"),
    ],
)
def test_pages_that_would_hide_others_are_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        extensions_of([Feature("shop", "redrive_kit.examples.orders", pages=f"{HERE}:{name}")])


@pytest.mark.parametrize("name", ["IN_THE_WAY", "AND_MORE"])
def test_routes_that_would_hide_others_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"routes of feature 'shop' are below /api/\w+, not /api/shop"):
        make_api(App("sqlite:///:memory:", features=[Feature("shop", "tests.features", routes=f"{HERE}:{name}")]))
    make_api(App("sqlite:///:memory:", features=[Feature("shop", "tests.features", routes=f"{HERE}:TWO")]))
