"""What both stores do with time series besides keeping them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from redrive.kernel.series import Cell, Document, Resolution, SeriesQuery, SeriesRow, Sums, add
from redrive.kernel.series import read as read_sheet

SHEETS = 100  # that are added up at once: of many kinds each, in a process that has other things to do
ROUNDS = 50
Sheets = Iterable[tuple[datetime, str]]


async def add_up_in_pieces(piece: Callable[[], Awaitable[int]]) -> int:
    """Adds up piece by piece until nothing is left, or it is enough for this time; returns how many sheets."""
    total = 0
    for _ in range(ROUNDS):
        done = await piece()
        total += done
        if done < SHEETS:
            break
    return total


def rows(which: SeriesQuery, stored: Iterable[tuple[datetime, str, str, str]], sheets: Sheets) -> list[SeriesRow]:
    """Returns rows as they are stored, and those that sheets will become: nobody has to wait until they are added."""
    found = [SeriesRow(at, queue, kind, json.loads(text)) for at, queue, kind, text in stored]
    fresh = Sums(entry for at, text in sheets for entry in read_sheet(text, at)).cells().items()
    return found + [SeriesRow(cell.at, cell.queue, cell.kind, document) for cell, document in fresh if which.fits(cell)]


def ends(since: datetime, stored: Iterable[tuple[datetime, str, str, int, int]], sheets: Sheets) -> list[SeriesRow]:
    """The same of what ended, by the minute."""
    found = [
        SeriesRow(at, queue, kind, {"completed": done, "failed": failed}) for at, queue, kind, done, failed in stored
    ]
    fresh = (
        SeriesRow(Resolution.MINUTE.start(at), *key, document)
        for at, text in sheets
        for _, key, document in read_sheet(text, at)
    )
    return [*found, *(one for one in fresh if one.at >= since and (one.completed or one.failed))]


def merged(adding: Mapping[Cell, Document], stored: Iterable[tuple[Cell, str]]) -> list[list[Any]]:
    """Returns rows as they are after adding: resolution, time, queue, kind, completed, failed, document."""
    for cell, text in stored:
        add(adding[cell], json.loads(text))
    return [
        [cell.resolution.value, cell.at, cell.queue, cell.kind, *_ends(document), _text(document)]
        for cell, document in adding.items()
    ]


def _ends(document: Document) -> tuple[int, int]:
    return document.get("completed", 0), document.get("failed", 0)


def _text(document: Document) -> str:
    return json.dumps(document, separators=(",", ":"))
