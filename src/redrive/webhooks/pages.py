"""The pages of webhooks in the console: endpoints, deliveries, and what a delivery's task says about its endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from redrive.console.live import Sample
from redrive.feature import Operator, Role, Task
from redrive.feature.console import FeaturePages, Item, Panel, Section, TheForm, ThePage, pages_router, render
from redrive.webhooks.deliveries import STATES, Deliveries
from redrive.webhooks.service import Endpoints

router = pages_router("webhooks")
FILTERS = ("account", "state", "type", "event", "before")


@router.get("/endpoints")
async def all_endpoints(page: ThePage) -> Response:
    asked = page.query
    found = await page.operator.of(Endpoints).list(
        asked.get("account"), asked.get("state"), direct="direct" in asked, after=asked.get("after")
    )
    return await page.render("webhooks/endpoints.html", found=found, asked=asked)


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


@router.get("/endpoints/{endpoint}")
async def one_endpoint(page: ThePage, endpoint: str) -> Response:
    found = await page.operator.of(Endpoints).show(endpoint)
    listed = await page.operator.of(Deliveries).list(endpoint, **_asked(page.query))
    return await page.render("webhooks/endpoint.html", one=found, found=listed, asked=page.query, states=STATES)


@router.post("/endpoints/{endpoint}")
async def edit(page: TheForm, endpoint: str) -> Response:
    """Changes an endpoint to what its form says: an empty field is no field that is left out."""
    form = page.form
    events = (form.text("events") or "").replace(",", " ").split()
    await page.operator.of(Endpoints).edit(endpoint, form.text("url"), events, form.text("description") or "")
    return page.back(f"Endpoint {endpoint} is changed.")


def _asked(query: Mapping[str, str]) -> dict[str, Any]:
    """Returns the filters of an address."""
    return {name: query[name] for name in FILTERS if name in query}


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
        return made | {"changed": found.state}

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
    services={"webhooks": Endpoints, "webhook_deliveries": Deliveries},
)
