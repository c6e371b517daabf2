"""The results of a batch as a file: its items as CSV or JSON, the same on the command line, over HTTP, in the console.
It is written while it is read: however many there are, no more than a piece is in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from redrive.batches.batch import PAGE
from redrive.batches.batch_service import BatchService
from redrive.batches.items import Item, item_document, items_csv
from redrive.errors import InvalidInput

FORMS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@dataclass(slots=True, frozen=True)
class WantedItems:
    """Which items of a batch: of these states, of a kind, failed by a type, behind one, so many at most."""

    states: Sequence[str] = ()
    kind: str | None = None
    failure_type: str | None = None
    after: str | None = None
    most: int = sys.maxsize


def check_form(form: str) -> str:
    """Returns a format that there is."""
    if form not in FORMS:
        raise InvalidInput(f"there is no format {form[:20]!r}", hint=" or ".join(FORMS))
    return form


async def results(
    batches: BatchService, batch: str, form: str, wanted: WantedItems | None = None
) -> AsyncIterator[str]:
    """Yields the text of the file."""
    written = 0
    async for items in _pieces(batches, batch, wanted or WantedItems()):
        yield _csv(items, written) if form == "csv" else _json(items, written)
        written += len(items)
    if form == "json":
        yield "\n]\n"


async def _pieces(batches: BatchService, batch: str, wanted: WantedItems) -> AsyncIterator[list[Item]]:
    """Yields items, at least once, and then without any where there are none."""
    after, left, more = wanted.after, wanted.most, True
    while more:
        found = await batches.items(
            batch,
            states=wanted.states,
            kind=wanted.kind,
            failure_type=wanted.failure_type,
            limit=min(PAGE, left),
            after=after,
        )
        after, left = found.next_after, left - len(found.items)
        more = after is not None and left > 0
        yield found.items


def _csv(items: list[Item], written: int) -> str:
    lines = items_csv(items)
    if written:
        next(lines)  # their names are there already
    return "".join(lines)


def _json(items: list[Item], written: int) -> str:
    documents = (json.dumps(item_document(one), ensure_ascii=False, default=str) for one in items)
    text = ",".join(f"\n{one}" for one in documents)
    return "[" + text if not written else "," + text if text else ""
