"""Everything that is declared has three faces: with the same parameters, fields, roles and refusals."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

from redrive import App, Context
from redrive.api import make_api
from redrive.cli.root import root
from redrive.cli.support.connection_option import WITHOUT
from redrive.console.mount import add_console
from redrive.console.templates_env import action_called
from redrive.errors import NotAllowed
from redrive.ledger.service import Ledger
from redrive.ops.access import Caller, Role
from redrive.ops.given import flat
from redrive.ops.operator.declared import Closed, Declared, Open, Page, declared_by, document, seen, shown_fields
from redrive.ops.operator.operator import SERVICES, service_of
from redrive.ops.operator.session import Service
from redrive.ops.views import Sight
from redrive.outbox.service import OutboxService
from redrive.settings import Options
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.service import Endpoints
from tests.api.conftest import served

OF_FEATURES: dict[str, type[Service]] = {
    "ledger": Ledger,
    "outbox": OutboxService,
    "webhooks": Endpoints,
    "webhook_deliveries": Deliveries,
}
ALL = {
    f"{group}.{verb}": (service, one)
    for group, service in ({group: service_of(group) for group in SERVICES} | OF_FEATURES).items()
    for verb, one in declared_by(service).items()
}
NAMES = sorted(ALL)
GROUPS = {"webhook_deliveries": "webhooks"}  # of services whose commands are among those of another
# Commands that are written by hand: they name what they are about in their own way.
BY_HAND = {
    "workers.drain_all": "workers drain",
    "webhooks.rotate_account": "webhooks rotate",
    "control.pause": "pause",
    "control.resume": "resume",
    "control.set_limit": "limits",
    "control.limits": "limits",
    "failures.types": "failed",
    "health.history": "stats",
}
# Commands that stand outside the group of their service.
ALONE = {
    "overview.show": "stats",
    "control.queues": "queues",
    "control.kinds": "kinds",
    "alerts.current": "alerts",
    "alerts.services": "slo",
}


@pytest.fixture
def app(tmp_path: Path) -> App:
    made = App(f"sqlite:///{tmp_path}/declared.db")

    @made.task("CALL", circuit=True)
    async def call(ctx: Context, secret: str = "") -> None: ...

    made.periodic("CALL", cron="0 3 * * *", payload={"secret": "s3cret"}, name="nightly")
    return made


@pytest.fixture(scope="module")
def routes() -> dict[tuple[str, str], APIRoute]:
    api = make_api(App("sqlite:///:memory:"))
    add_console(api)
    found = [one for one in api.routes if isinstance(one, APIRoute)]
    return {(method, one.path): one for one in found for method in one.methods}


@pytest.fixture(scope="module")
def commands() -> Any:
    return root()


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_route_with_its_parameters_and_fields(name: str, routes: dict[tuple[str, str], APIRoute]) -> None:
    _, one = ALL[name]
    inside = {given.name for given in flat(one.parameters, inner=False) if not given.in_path}
    for path, _ in one.routes:
        route = routes[one.method, path]
        assert one.help in (route.description or "") and one.help
        if not one.has_body:
            assert inside <= {field.name for field in route.dependant.query_params}
        else:
            body: Any = route.body_field
            assert inside | {"actor"} == set(_model(body.field_info.annotation).model_fields)
        if (shown := _shown(one)) and one.status != 204:
            answer = _model(route.response_model)
            answer = _model(answer.model_fields[one.items].annotation) if _is_page(one) else answer
            assert list(answer.model_fields) == list(shown)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_command_with_its_parameters(name: str, commands: Any) -> None:
    _, one = ALL[name]
    service = name.partition(".")[0]
    group = GROUPS.get(service, service)
    usual = group if name.endswith(".list") and service not in GROUPS else f"{group} {one.command}"
    command = commands
    for word in (ALONE | BY_HAND).get(name, usual).split():
        command = command.commands[word]
    taken = {given.name for given in command.params}
    assert {"json", "url", "app"} <= taken
    assert ("connection" in taken) is (service not in WITHOUT)
    assert name in BY_HAND or {given.argument for given in flat(one.parameters)} <= taken
    assert name in BY_HAND or ("by" in taken) is not one.looks


@pytest.mark.parametrize("name", [name for name in NAMES if not ALL[name][1].looks])
def test_its_form_is_drawn_of_its_parameters(name: str, routes: dict[tuple[str, str], APIRoute]) -> None:
    assert action_called(name)[1] is ALL[name][1]
    assert ("POST", "/ops/queue/act/{name}") in routes


@pytest.mark.parametrize("name", NAMES)
async def test_who_may_less_is_refused_before_anything_is_looked_at(app: App, name: str) -> None:
    service, one = ALL[name]
    below = [role for role in Role if role < one.role]
    for role in below:
        own = (await app.operator(Caller("eve", role))).of(service)
        with pytest.raises(NotAllowed):
            await getattr(own, one.verb)(**{given.name: "none" for given in one.parameters if given.required})
    await app.close()


async def test_viewers_see_open_fields_alone_in_every_face(app: App) -> None:
    """Over HTTP, and by what the other two are made of."""
    await app.migrate()
    await app.ledger.open("acme", label="s3cret")
    await app.worker(await app.store(), Options(stop_when_empty=True)).run()
    async with served(app) as client:
        for name, (service, one) in ALL.items():
            if not one.lists or one.role > Role.VIEWER or any(given.required for given in one.parameters):
                continue
            viewer = await app.operator(Caller("eve", Role.VIEWER))
            page = document(await getattr(viewer.of(service), one.verb)(), viewer.sight)
            answer = (await client.get(one.path)).json()
            found = page["items"] if isinstance(page, dict) else page
            wholes = answer[to_camel(one.items)] if _is_page(one) else answer
            closed = {field for field, (_, shown) in _shown(one).items() if not isinstance(shown, Open)}
            for whole, seen in zip(wholes, found, strict=True):
                assert {field for field in closed if seen[field] is not None} == set(), name
                assert len(whole) == len(seen), name
                assert "s3cret" not in str(seen)
        for path in ("/api/schedules", "/api/ledger/accounts"):
            assert "s3cret" in (await client.get(path)).text, "those who may act see it"


def test_a_field_that_says_nothing_is_closed() -> None:
    viewer = Caller("eve", Role.VIEWER)
    thing = make_dataclass("Thing", [("name", str)])
    assert document(thing("x"), Sight(viewer.role)) == {"name": None}
    assert document(thing("x"), Sight(Role.OPERATOR)) == {"name": "x"}


@dataclass(slots=True, frozen=True)
class Thing:
    name: Annotated[str, Open()]
    key: Annotated[str | None, Closed()]
    parts: Annotated[list[Thing], Open()]

    @property
    def title(self) -> Annotated[str, Open()]:
        return f"{self.name} {self.key}"

    @property
    def own(self) -> str:
        return "nobody asked"


def test_properties_of_which_something_is_said_are_fields() -> None:
    thing = Thing("x", "k", [])
    assert document(thing, Sight(Role.OPERATOR)) == {"name": "x", "key": "k", "parts": [], "title": "x k"}


def test_closed_fields_do_not_leave_the_service() -> None:
    """Also where code or a page asks it, within a list or within another view."""
    page = Page([Thing("x", "k", [Thing("y", "l", [])])], None)
    [found] = seen(page, Sight(Role.VIEWER)).items
    assert (found.key, found.parts[0].key, found.parts[0].name, found.title) == (None, None, "y", "x None")
    assert seen(page, Sight(Role.OPERATOR)) is page


def test_methods_of_services_are_found_where_they_are_written() -> None:
    """A declared method is what a reader opens and a debugger steps into."""
    for service, one in ALL.values():
        assert inspect.unwrap(vars(service)[one.verb]) is one.function
        assert issubclass(service, Service)


def _shown(one: Declared) -> dict[str, Any]:
    return shown_fields(one.view) if hasattr(one.view, "__dataclass_fields__") and one.view.__name__ != "Task" else {}


def _is_page(one: Declared) -> bool:
    """Whether over HTTP the list is a field of a document."""
    return issubclass(get_origin(one.result) or object, Page) and one.items != ""


def _model(annotation: Any) -> Any:
    """Returns the model of ``list[Model]`` or ``Model | None``."""
    inner = [one for one in get_args(annotation) if one is not type(None)]
    return _model(inner[0]) if inner else annotation
