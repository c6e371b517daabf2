"""The filters of lists, as they stand in an address. Their names are those of the API; older ones are understood."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.console.page import Page
from redrive.errors import InvalidInput
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import facts
from redrive.ops import failed
from redrive.ops.filters import FILTERS

PAGE_SIZE = 50


def of_failures(given: Mapping[str, str]) -> FailureFilter:
    """Returns the filter that an address or a form asks for, checked."""
    texts = {}
    for one in FILTERS:
        texts[one.field] = (given.get(one.parameter) or (one.earlier and given.get(one.earlier)) or "").strip() or None
    return failed.failures(**texts)


def fields(which: FailureFilter) -> dict[str, str]:
    """Returns a filter as the fields of an address."""
    names = {one.field: one.parameter for one in FILTERS}
    return {names[name]: str(value) for name, value in facts(which).items() if name in names}


def page_number(page: Page) -> int:
    text = page.query.get("page", "1")
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise InvalidInput(f"there is no page {text[:20]!r}")
    return int(text)


def whole_number(page: Page, name: str) -> int | None:
    """Returns a place in a list; None when none is asked for."""
    text = page.query.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise InvalidInput(f"{name} is no place in the list", hint="go to the first page")
    return int(text)
