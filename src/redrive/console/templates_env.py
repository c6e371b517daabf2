"""The templates of the console, made once; everything that is put into them is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from redrive.console import charts, text
from redrive.console.door import HOME
from redrive.console.navigation import SECTIONS
from redrive.console.static_files import asset
from redrive.console.story import stack_lines
from redrive.version import __version__


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("redrive.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        enable_async=False,
        auto_reload=False,
    )
    made.filters.update(text.FILTERS)
    made.globals.update(
        home=HOME,
        sections=SECTIONS,
        version=__version__,
        asset=asset,
        relative=text.relative,
        charts=charts,
        summary_text=text.summary_text,
        stack_lines=stack_lines,
    )
    return made


async def render(template: str, **values: Any) -> str:
    """Returns the text of a page. Pages are bounded: lists come by pages, and long values are cut."""
    return environment().get_template(template).render(values)


def fragment(template: str, **values: Any) -> str:
    """Returns a part of a page, for a live region."""
    return environment().get_template(template).render(values)
