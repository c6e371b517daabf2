"""Draws a bar for what takes a while: on a terminal only, on stderr, and gone when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


def bar(total: int | None = None, *, draw: bool = True) -> Progress:
    """Returns a bar: with a total, how far and how long still; without one, how many so far. ``draw=False`` is for a
    command that prints lines instead."""
    counted = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    columns = counted if total is not None else (SpinnerColumn(), TextColumn("{task.completed:,.0f}"))
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        console=Console(file=sys.stderr),
        transient=True,
        disable=not (draw and sys.stderr.isatty()),
    )


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Draws a bar within the block; yields what to call with the number of things done since the last call."""
    with bar(total) as shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.advance(task, done)
