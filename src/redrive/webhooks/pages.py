"""The pages of webhooks in the console: endpoints, deliveries, and what a delivery's task says about its endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from redrive.console.live import Sample
from redrive.feature import Operator, Role, Task
from redrive.feature.console import FeaturePages, Item, Panel, Section, TheForm, ThePage, pages_router, render
from redrive.webhooks.deliveries import STATES, Deliveries
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.service import Endpoints

router = pages_router("webhooks")
FILTERS = {"account": "account", "state": "state", "type": "event_type", "event": "event", "before": "before"}


@router.get("/endpoints")
async def all_endpoints(page: ThePage) -> Response:
    asked = page.query
    found = await page.operator.of(Endpoints).list(
        asked.get("account"), asked.get("state"), direct="direct" in asked, after=asked.get("after")
    )
    return await page.render("webhooks/endpoints.html", found=found, asked=asked)


@router.post("/endpoints")
async def add_endpoint(page: TheForm) -> Response:
    """Adds an endpoint; the page that answers is the only one that ever shows its secret."""
    form = page.form
    made = await page.operator.of(Endpoints).add(
        form.text("account") or DEFAULT_ACCOUNT,
        form.needed("url", "the URL"),
        (form.text("events") or "").replace(",", " ").split(),
        form.text("description"),
        secret=form.text("secret"),
        shared=form.is_on("shared"),
        once=form.text("once"),
    )
    return await page.render("webhooks/secret.html", endpoint=made["id"], made=made, what="is added")


@router.get("/add")
async def add_form(page: ThePage) -> Response:
    page.operator.insist(Role.OPERATOR)
    return await page.render("webhooks/add.html")


@router.get("/deliveries")
async def all_deliveries(page: ThePage) -> Response:
    found = await page.operator.of(Deliveries).list(page.query.get("endpoint"), **_asked(page.query))
    return await page.render("webhooks/deliveries.html", found=found, asked=page.query, states=STATES)


@router.get("/deliveries/{delivery}")
async def one_delivery(page: ThePage, delivery: str) -> Response:
    found = await page.operator.of(Deliveries).show(delivery)
    return await page.render("webhooks/delivery.html", one=found)


@router.post("/deliveries/{delivery}/redeliver")
async def redeliver(page: TheForm, delivery: str) -> Response:
    found = await page.operator.of(Deliveries).redeliver(delivery, page.form.text("reason"))
    return page.go(page.link(f"/webhooks/deliveries/{found['id']}"), "It is sent once more.")


@router.get("/endpoints/{endpoint}")
async def one_endpoint(page: ThePage, endpoint: str) -> Response:
    found = await page.operator.of(Endpoints).show(endpoint)
    listed = await page.operator.of(Deliveries).list(endpoint, **_asked(page.query))
    return await page.render("webhooks/endpoint.html", one=found, found=listed, asked=page.query, states=STATES)


@router.post("/endpoints/{endpoint}")
async def act(page: TheForm, endpoint: str) -> Response:
    """Does what the button says that was pressed."""
    own, reason = page.operator.of(Endpoints), page.form.text("reason")
    match page.form.text("do"):
        case "enable":
            await own.enable(endpoint, reason)
        case "disable":
            await own.disable(endpoint, reason)
        case "remove":
            await own.remove(endpoint, reason)
            return page.go(page.link("/webhooks/endpoints"), f"Endpoint {endpoint} is removed.")
        case "ping":
            sent = await page.operator.of(Deliveries).ping(endpoint)
            return page.go(page.link(f"/webhooks/deliveries/{sent['id']}"), "The ping is on its way.")
        case "rotate":
            hours = page.form.number("overlap", "the hours")
            made = await own.rotate(endpoint, secret=page.form.text("secret"), overlap_hours=hours)
            return await page.render("webhooks/secret.html", endpoint=endpoint, made=made, what="has a new secret")
        case _:
            await _edit(page, own, endpoint)
    return page.back(f"Endpoint {endpoint} is changed.")


async def _edit(page: TheForm, own: Endpoints, endpoint: str) -> None:
    form = page.form
    events = (form.text("events") or "").replace(",", " ").split()
    await own.edit(endpoint, url=form.text("url"), events=events, description=form.text("description") or "")


def _asked(query: Mapping[str, str]) -> dict[str, Any]:
    """Returns the filters of an address as the service calls them."""
    return {name: query[asked] for asked, name in FILTERS.items() if asked in query}


async def panel(operator: Operator, task: Task) -> Panel | None:
    """Returns the way from a task to the requests that it made; of one that was erased nobody knows."""
    if not task.facts:
        return None
    return Panel("Webhook", "webhooks/panel.html", {"facts": task.facts, "task": task.id})


def live_delivery(delivery: str) -> Sample:
    async def sample(operator: Operator) -> Mapping[str, str]:
        found = await operator.of(Deliveries).show(delivery)
        now = await operator.health.now()
        parts = {"#facts": "webhooks/facts.html", "#requests": "webhooks/attempts.html"}
        made = {name: render(template, operator, one=found, now=now) for name, template in parts.items()}
        return made | {"changed": found["state"]}

    return sample


async def failing(operator: Operator) -> int:
    """Returns how many endpoints need somebody: they fail, or were given up."""
    return await operator.of(Endpoints).troubled()


pages = FeaturePages(
    router,
    Section(
        "Notify",
        (
            Item("Webhooks", "/webhooks/endpoints", "Endpoints of customers", badge="webhooks", key="k"),
            Item("Deliveries", "/webhooks/deliveries", "Events that were sent, and what was answered"),
        ),
    ),
    panel,
    {"webhooks-delivery": live_delivery},
    failing,
)
