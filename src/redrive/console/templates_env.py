"""The templates of the console, made once; everything that is put into them is escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from redrive.console import charts, text
from redrive.console.addresses import Home, home
from redrive.console.static_files import asset
from redrive.console.task_story import stack_lines
from redrive.errors import ConfigError, PageUnknown
from redrive.ops.operator import Operator
from redrive.ops.operator.declared import Declared, declared_by
from redrive.ops.operator.operator import SERVICES, service_of
from redrive.ops.operator.session import Service
from redrive.ops.shell import NO_SHELL
from redrive.version import __version__

_FEATURES: dict[str, BaseLoader] = {}  # by the name of the feature, with which those of its templates begin
_REFERENCES: dict[str, str] = {}  # of features: how things are called, and their pages
_SERVICES: dict[str, type[Service]] = {}  # of features, whose actions forms do


def add_templates(feature: str, package: str, references: Mapping[str, str]) -> None:
    """Makes the templates of a feature known: those in the folder ``templates/NAME`` of its package, as ``NAME/…``; and
    the pages of what others call by a ``reference``."""
    _REFERENCES.update(references)
    try:
        _FEATURES[feature] = PackageLoader(package, f"templates/{feature}")
    except ValueError:
        raise ConfigError(f"the feature {feature!r} has pages, and {package} no folder templates/{feature}") from None


def add_services(services: Mapping[str, type[Service]]) -> None:
    """Makes the actions known that services of a feature declare."""
    _SERVICES.update(services)


def action_called(name: str) -> tuple[type[Service], Declared]:
    """Returns a declared action by its name, such as ``circuits.open``, with the service that has it."""
    group, _, verb = name.partition(".")
    service = _SERVICES.get(group) or (service_of(group) if group in SERVICES else None)
    found = None if service is None else declared_by(service).get(verb)
    if service is None or found is None or found.looks:
        raise PageUnknown(f"there is no action {name!r}")
    return service, found


@cache
def environment() -> Environment:
    made = Environment(
        loader=ChoiceLoader([PackageLoader("redrive.console"), PrefixLoader(_FEATURES)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        enable_async=False,
        auto_reload=False,
    )
    made.filters.update(text.FILTERS)
    made.globals.update(
        home=Home(),
        action=lambda name: action_called(name)[1],
        address=address,
        about_page=about,
        version=__version__,
        asset=asset,
        relative=text.relative,
        charts=charts,
        summary_text=text.summary_text,
        stack_lines=stack_lines,
    )
    return made


def address(path: str, **fields: Any) -> str:
    """Returns the address of a page of the console with these fields."""
    return home() + path + (f"?{urlencode(fields)}" if fields else "")


def about(reference: str) -> str | None:
    """Returns the address of what somebody calls so: ``batch:ID`` is a page of batches. None where nobody knows."""
    for pattern, path in _REFERENCES.items():
        if found := re.fullmatch(pattern, reference):
            return home() + found.expand(path)
    return None


def render(template: str, operator: Operator | None, **values: Any) -> str:
    """Returns the text of a page, or of a region of one: both know the same. Pages are bounded: lists come by pages,
    and long values are cut. Without an operator, for who is not signed in, commands say nothing of the store."""
    return environment().get_template(template).render(values, shell=NO_SHELL if operator is None else operator.shell)
