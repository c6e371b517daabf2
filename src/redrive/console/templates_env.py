"""The templates of the console, made once; everything that is put into them is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from redrive.console import charts, text
from redrive.console.place import Home, home
from redrive.console.static_files import asset
from redrive.console.story import stack_lines
from redrive.errors import ConfigError
from redrive.version import __version__

_FEATURES: dict[str, BaseLoader] = {}  # by the name of the feature, with which those of its templates begin


def add_templates(feature: str, package: str) -> None:
    """Makes the templates of a feature known: those in the folder ``templates/NAME`` of its package, as ``NAME/…``."""
    try:
        _FEATURES[feature] = PackageLoader(package, f"templates/{feature}")
    except ValueError:
        raise ConfigError(f"the feature {feature!r} has pages, and {package} no folder templates/{feature}") from None


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
        address=address,
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


async def render(template: str, **values: Any) -> str:
    """Returns the text of a page. Pages are bounded: lists come by pages, and long values are cut."""
    return environment().get_template(template).render(values)


def fragment(template: str, **values: Any) -> str:
    """Returns a part of a page, for a live region."""
    return environment().get_template(template).render(values)
