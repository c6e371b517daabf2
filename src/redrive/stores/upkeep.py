"""What both stores do when they prune, and when they add up time series."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from redrive.errors import StoreUnavailable
from redrive.kernel.retention import FeatureRule
from redrive.kernel.series import Cell, Document, Resolution, SeriesQuery, SeriesRow, Sums, add
from redrive.kernel.series import read as read_sheet

# Does long work in pieces, so that nobody waits for the whole of it.

MOST_PIECES_PER_PRUNE = 20


async def prune_in_pieces(piece: Callable[[], Awaitable[tuple[int, bool]]]) -> int:
    """Calls for piece after piece, each a transaction of its own; returns how many rows went. A piece returns how many,
    and if there may be more: what has to be kept is looked at, too, and must not end the round."""
    removed = 0
    for _ in range(MOST_PIECES_PER_PRUNE):
        gone, more = await piece()
        removed += gone
        if not more:
            break
    return removed


async def prune_features(
    rules: Iterable[FeatureRule], piece: Callable[[FeatureRule], Awaitable[tuple[int, bool]]]
) -> int:
    """Removes rows of features in pieces; returns how many went. A statement that is refused keeps nobody else's rows
    from going, and is raised at the end."""
    removed, failed = 0, None
    for rule in rules:
        try:
            removed += await prune_in_pieces(partial(piece, rule))
        except StoreUnavailable:
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return removed


# What both stores do with time series besides keeping them.

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


def series_rows(
    which: SeriesQuery, stored: Iterable[tuple[datetime, str, str, str]], sheets: Sheets
) -> list[SeriesRow]:
    """Returns rows as they are stored, and those that sheets will become: nobody has to wait until they are added."""
    found = [SeriesRow(at, queue, kind, json.loads(text)) for at, queue, kind, text in stored]
    fresh = Sums(entry for at, text in sheets for entry in read_sheet(text, at)).cells().items()
    return found + [SeriesRow(cell.at, cell.queue, cell.kind, document) for cell, document in fresh if which.fits(cell)]


def series_ends(
    since: datetime, stored: Iterable[tuple[datetime, str, str, int, int]], sheets: Sheets
) -> list[SeriesRow]:
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


def add_to_series(adding: Mapping[Cell, Document], stored: Iterable[tuple[Cell, str]]) -> list[list[Any]]:
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
