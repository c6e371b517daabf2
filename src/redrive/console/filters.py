"""The filters of lists, as they stand in an address. Their names are those of the API; older ones are understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from redrive.console.page import Page
from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import facts
from redrive.kernel.reads import HoldRow
from redrive.ops import failures
from redrive.ops.audit import AUDIT_FILTERS, make_audit
from redrive.ops.filters import FAILURE_FILTERS, Filter, filters_by_name, texts_of
from redrive.ops.operator.control import KindView, QueueView

PAGE_SIZE = 50
FORGOTTEN = "forgotten"  # of a preview and its retry: these are meant, too
NAMES_PER_PAGE = 36  # queues, kinds and pauses, each with forms of its own
AUDIT_FIELDS = tuple(filters_by_name(AUDIT_FILTERS))


@dataclass(slots=True, frozen=True)
class NamedPause:
    """A pause with the name by which it is listed: a queue and a kind may be called alike."""

    name: str
    row: HoldRow


Named = TypeVar("Named", QueueView, KindView, NamedPause)


def of_failures(given: Mapping[str, str]) -> FailureFilter:
    """Returns the filter that an address or a form asks for, checked."""
    texts = texts_of({name: _text(given, name) for name in given})
    made = failures.parse_filter(**texts)
    return replace(made, forgotten=True) if _text(given, FORGOTTEN) else made


def of_audit(given: Mapping[str, str]) -> AuditFilter:
    """Returns the filter of audit rows that an address or a form asks for, checked."""
    return make_audit(**texts_of({name: _text(given, name) for name in given}, AUDIT_FILTERS))


def failure_filter_of(page: Page, *others: str, of: tuple[Filter, ...] = FAILURE_FILTERS) -> FailureFilter:
    """Returns the filter of a page's address, which may also have these other fields. A misspelt filter that is ignored
    would widen what is asked for."""
    refuse_unknown(page, *filters_by_name(of), *others)
    return of_failures(page.query)


def refuse_unknown(page: Page, *known: str) -> None:
    refuse_unknown_of(page.query, *known)


def refuse_unknown_of(given: Mapping[str, str], *known: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidInput(f"unknown filters: {', '.join(unknown)[:200]}", hint=f"known ones: {', '.join(known)}")


def _text(given: Mapping[str, str], name: str) -> str | None:
    return given.get(name, "").strip() or None


def fields(which: FailureFilter) -> dict[str, str]:
    """Returns a filter as the fields of an address."""
    names = {one.field: one.parameter for one in FAILURE_FILTERS}
    found = {names[name]: str(value) for name, value in facts(which).items() if name in names}
    return found | ({FORGOTTEN: "1"} if which.forgotten else {})


def is_whole(text: str) -> bool:
    """Returns whether a text is a whole number that a store can count to: no "²", which is a digit to Python."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def page_number(page: Page) -> int:
    text = page.query.get("page", "1")
    if not is_whole(text) or not 1 <= int(text) <= 1_000_000:
        raise InvalidInput(f"there is no page {text[:20]!r}")
    return int(text)


def by_name(page: Page, named: Sequence[Named], field: str) -> tuple[list[Named], str | None]:
    """Returns those of a list by name that a page shows, and behind which name the next page begins. ``q`` narrows it
    to names that hold a word, ``field`` is the place in the address."""
    word, after = page.query.get("q", "").strip().lower(), page.query.get(field, "")
    found = sorted((one for one in named if one.name > after and word in one.name.lower()), key=lambda one: one.name)
    shown = found[:NAMES_PER_PAGE]
    return shown, shown[-1].name if len(found) > NAMES_PER_PAGE else None


def whole_number(page: Page, name: str) -> int | None:
    """Returns a place in a list; None when none is asked for."""
    text = page.query.get(name)
    if text is None:
        return None
    if not is_whole(text):
        raise InvalidInput(f"{name} is no place in the list", hint="go to the first page")
    return int(text)
