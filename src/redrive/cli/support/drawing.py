"""Draws with Rich: tables, text with colours, and a bar for what takes a while. Imported when something is drawn: Rich
takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from redrive.cli.support.terminal_text import clean

if TYPE_CHECKING:
    from rich.progress import Progress

STATE_STYLE = {"failed": "red", "running": "cyan", "completed": "green", "paused": "yellow", "cancelled": "dim"}
WIDTH_WHEN_PIPED = 10_000


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Does nothing: the reader has seen enough (``| head``), which is no failure of ours."""
        raise BrokenPipeError


def console(at_least: int = 0) -> Console:
    """Returns a console: plain and as wide as needed when piped; colours and the terminal's width otherwise."""
    out = _Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    out.width = max(out.width, at_least) if sys.stdout.isatty() else WIDTH_WHEN_PIPED
    return out


def say(line: Text) -> None:
    console().print(line, soft_wrap=True)


def heading(text: str) -> None:
    say(Text(text, style="bold"))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None, last: int) -> None:
    """Prints columns without lines; ``#`` before a name means numbers. Only the last column is folded to fit. Where the
    terminal is too narrow for that, it goes below its row; an id can still be copied in one piece."""
    cells = [[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row] for row in rows]
    if title:
        say(Text(title, style="bold underline"))
    if sys.stdout.isatty() and len(columns) > 2 and _least_width(columns, cells, last) > console().width:
        _stacked(columns, cells, last)
        return
    sys.stdout.write("\n".join(_grid(columns, cells, last)) + "\n")


def _grid(columns: Sequence[str], cells: Sequence[Sequence[Text]], last: int) -> list[str]:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(columns):
        justify: JustifyMethod = "right" if name.startswith("#") else "left"
        grid.add_column(name.lstrip("#"), justify=justify, no_wrap=index < len(columns) - 1, overflow="fold")
    for row in cells:
        grid.add_row(*row)
    out = console(_least_width(columns, cells, last))
    with out.capture() as captured:
        out.print(grid)
    # Padding behind the last column is only noise, in a pipe or in a terminal.
    return [line.rstrip() for line in captured.get().splitlines()]


def _stacked(columns: Sequence[str], cells: Sequence[Sequence[Text]], last: int) -> None:
    """Returns as many columns as fit, and the rest of each row below it."""
    widths = _widths(columns, cells)
    fit = max((n for n in range(1, len(columns)) if sum(widths[:n]) - 2 <= console().width), default=1)
    head, *lines = _grid(columns[:fit], [row[:fit] for row in cells], last)
    sys.stdout.write(head + "\n")
    for line, row in zip(lines, cells, strict=True):
        sys.stdout.write(line + "\n")
        below = Text("  ").join([cell for cell in row[fit:] if cell.plain.strip()])
        if below.plain:
            say(Text.assemble("    ", below))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> list[int]:
    return [
        max([len(name.lstrip("#")), *(row[index].cell_len for row in rows)]) + 2 for index, name in enumerate(columns)
    ]


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[Text]], last: int) -> int:
    widths = _widths(columns, rows)
    return sum(widths[:-1]) + min(widths[-1], last)


def red(text: str) -> Text:
    return Text(text, style="red")


def state(name: str) -> Text:
    return Text(name, style=STATE_STYLE.get(name, ""))


def bar(total: int | None = None, *, draw: bool = True) -> Progress:
    """Returns a bar on stderr, on a terminal only, and gone when it is done: with a total, how far and how long still;
    without one, how many so far. ``draw=False`` is for a command that prints lines instead."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

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
def progress_bar(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Draws a bar within the block; yields what to call with the number of things done since the last call."""
    with bar(total) as shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.advance(task, done)
