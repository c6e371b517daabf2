"""What a feature adds to the console: pages, their places in the menu, a panel on the page of a task, live regions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter

from redrive import features
from redrive.console.addresses import HOME
from redrive.console.live import Number, Sampler
from redrive.console.navigation import SECTIONS, Section, Usage, Used, joined
from redrive.console.templates_env import add_services, add_templates, render
from redrive.errors import ConfigError, RedriveError
from redrive.kernel.feature import Feature
from redrive.kernel.task import Task
from redrive.ops.operator import Operator
from redrive.ops.operator.session import Service

logger = logging.getLogger("redrive.console")


@dataclass(slots=True, frozen=True)
class Panel:
    """A part of a task's page, made of a template of the feature."""

    title: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


# Gets the operator and a task that carries the feature's name, with ``task.facts``; None where it has nothing to say.
MakePanel = Callable[[Operator, Task], Awaitable[Panel | None]]


@dataclass(slots=True, frozen=True)
class FeaturePages:
    """What ``Feature.pages`` names. ``router`` is made by ``pages_router("NAME")``; templates are in the folder
    ``templates/NAME`` of the feature's package, and are called ``NAME/…``. Topics are called ``NAME`` or ``NAME-…``."""

    router: APIRouter
    section: Section | None = None
    panel: MakePanel | None = None
    topics: Mapping[str, Sampler] = field(default_factory=dict)
    number: Number | None = None  # stands beside its items that say ``badge="NAME"``, on every page
    # Whether anybody uses it: until then the menu leaves its pages out. Without it they are always there.
    used: Used | None = None
    # What others call things of this feature, as patterns, and the page of each: {r"order:(\w+)": r"/orders/\1"}.
    references: Mapping[str, str] = field(default_factory=dict)
    # Whose declared actions its forms do, by the first part of their names: {"orders": Orders}.
    services: Mapping[str, type[Service]] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Extensions:
    """All that the features of an application add; ``sections`` is the whole menu."""

    routers: tuple[APIRouter, ...]
    sections: tuple[Section, ...]
    topics: Mapping[str, Sampler]
    panels: Mapping[str, MakePanel]
    numbers: Mapping[str, Number]
    usage: Usage = field(default_factory=lambda: Usage({}))

    async def panel(self, operator: Operator, task: Task, **values: Any) -> tuple[str, str] | None:
        """Returns title and HTML of the panel that a task's feature has for it. One that fails leaves a note: the rest
        of the page is needed then all the more."""
        make = self.panels.get(task.feature or "")
        if make is None:
            return None
        try:
            made = await make(operator, task)
            return None if made is None else (made.title, render(made.template, operator, **values, **made.values))
        except RedriveError as error:
            return str(task.feature), render("regions/note.html", operator, text=error.message)
        except Exception:
            logger.exception(
                "the panel of %s could not be made", task.feature, extra={"event": "console.panel", "task_id": task.id}
            )
            return str(task.feature), render(
                "regions/note.html", operator, text="This could not be shown; the log says why."
            )


def extensions_of(brought: Iterable[Feature]) -> Extensions:
    """Imports what these features add; what would hide something else is refused."""
    found = {feature: _load(feature) for feature in brought if feature.pages is not None}
    sections = joined([*SECTIONS, *(pages.section for pages in found.values() if pages.section is not None)])
    for feature, pages in found.items():
        add_templates(feature.name, feature.package, pages.references)
        add_services(pages.services)
    return Extensions(
        tuple(pages.router for pages in found.values()),
        sections,
        {name: sampler for pages in found.values() for name, sampler in pages.topics.items()},
        {feature.name: pages.panel for feature, pages in found.items() if pages.panel is not None},
        {feature.name: pages.number for feature, pages in found.items() if pages.number is not None},
        Usage({feature.name: pages.used for feature, pages in found.items() if pages.used is not None}),
    )


def _load(feature: Feature) -> FeaturePages:
    pages = features.load(feature.pages or "")
    if not isinstance(pages, FeaturePages):
        raise ConfigError(f"{feature.pages} is {type(pages).__name__}, not FeaturePages")
    name, home = feature.name, f"{HOME}/{feature.name}"
    if pages.router.prefix != home:
        raise ConfigError(
            f"the pages of feature {name!r} are below {pages.router.prefix}, not {home}",
            hint=f'make its router with pages_router("{name}")',
        )
    for item in pages.section.items if pages.section is not None else ():
        if item.url != home and not item.url.startswith(f"{home}/"):
            raise ConfigError(f"the page {item.name!r} of feature {name!r} leads to {item.url}, not below {home}")
        if item.badge not in (None, name):
            raise ConfigError(
                f"the number beside {item.name!r} of feature {name!r} is called {item.badge!r}, not {name!r}"
            )
    for topic in pages.topics:
        if topic != name and not topic.startswith(f"{name}-"):
            raise ConfigError(f"the topic {topic!r} of feature {name!r} is not called {name} or {name}-…")
    return pages
