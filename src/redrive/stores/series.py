"""What both stores do with time series besides keeping them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from redrive.kernel.series import Cell, Counted, Ended, Resolution, SeriesQuery, SeriesRow, Tally, cells, from_document
from redrive.kernel.series import read as read_sheet

SHEETS = 2000  # that are added up at once
Sheets = Iterable[tuple[datetime, str]]


def counted(sheets: Sheets) -> list[Counted]:
    """Returns what the sheets of workers say."""
    return [entry for at, document in sheets for entry in read_sheet(document, at)]


def rows(which: SeriesQuery, stored: Iterable[tuple[datetime, str, str, str]], sheets: Sheets) -> list[SeriesRow]:
    """Returns rows as they are stored, and those that sheets will become: nobody has to wait until they are added."""
    found = [SeriesRow(at, queue, kind, from_document(json.loads(text))) for at, queue, kind, text in stored]
    fresh = cells(counted(sheets)).items()
    return found + [SeriesRow(cell.at, cell.queue, cell.kind, tally) for cell, tally in fresh if which.fits(cell)]


def ended(since: datetime, stored: Iterable[Ended], sheets: Sheets) -> list[Ended]:
    """The same of what ended, by the minute."""
    fresh = (
        Ended(Resolution.MINUTE.start(at), *key, tally.completed, tally.failed) for at, key, tally in counted(sheets)
    )
    return [*stored, *(one for one in fresh if one.at >= since and (one.completed or one.failed))]


def merged(adding: Mapping[Cell, Tally], stored: Iterable[tuple[Cell, str]]) -> list[list[Any]]:
    """Returns rows as they are after adding: resolution, time, queue, kind, completed, failed, document."""
    for cell, text in stored:
        adding[cell].add(from_document(json.loads(text)))
    return [
        [cell.resolution.value, cell.at, cell.queue, cell.kind, tally.completed, tally.failed, _text(tally)]
        for cell, tally in adding.items()
    ]


def _text(tally: Tally) -> str:
    return json.dumps(tally.document(), separators=(",", ":"))
