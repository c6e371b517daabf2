"""Draws the help of commands: usage, what it does, and panels of options or commands.

Not by Rich, though it looks like it: with all that it needs for this, Rich takes longer to load than most commands to
run."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WIDTH_WHEN_PIPED = 80
LEAST_WIDTH = 40
BOLD, DIM, NAME = "\x1b[1m", "\x1b[2m", "\x1b[1;36m"
_PLAIN = "\x1b[0m"
_SENTENCE = re.compile(r"\.(?= [A-Z])")


class Panel(NamedTuple):
    """A box of names, each with what it is about."""

    title: str
    rows: list[tuple[str, str]]


class Page(NamedTuple):
    """What ``--help`` says."""

    usage: str
    text: str
    panels: list[Panel]
    epilog: str


def show(page: Page) -> str:
    """Returns a page for where it is printed: as wide as the terminal is, with colours where it has some."""
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return draw(page, _width(), coloured=coloured)


def draw(page: Page, width: int, *, coloured: bool = False) -> str:
    """Returns a page as text."""
    width = max(width, LEAST_WIDTH)
    name = min(max((len(name) for panel in page.panels for name, _ in panel.rows), default=0), width // 2)
    parts = [
        ["", *(_styled(f" {line}", BOLD, coloured) for line in _wrapped(f"Usage: {page.usage}", width - 2)), ""],
        [*_paragraphs(page.text, width), ""] if page.text else [],
        *(_box(panel, name, width, coloured) for panel in page.panels if panel.rows),
        ["", *_paragraphs(page.epilog, width)] if page.epilog else [],
    ]
    return "".join(f"{line}\n" for part in parts for line in part)


def first_sentence(text: str) -> str:
    """Returns how a command is summed up among others."""
    whole = " ".join(text.split())
    found = _SENTENCE.search(whole)
    return whole[: found.end()] if found else whole


def _box(panel: Panel, name: int, width: int, coloured: bool) -> Iterator[str]:
    title = f"─ {panel.title} "
    yield _styled(f"╭{title}{'─' * (width - 2 - len(title))}╮", DIM, coloured)
    side = _styled("│", DIM, coloured)
    room = width - name - 6
    for first, text in panel.rows:
        below = [""] if len(first) > name else []  # too long to have something beside it
        lines = [*below, *_wrapped(text, room)] or [""]
        for number, line in enumerate(lines):
            head = first if number == 0 else ""
            space = " " * max(name - len(head), 0)
            rest = line.ljust(room + min(name - len(head), 0))
            yield f"{side} {_styled(head, NAME, coloured)}{space}  {rest} {side}"
    yield _styled(f"╰{'─' * (width - 2)}╯", DIM, coloured)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Yields paragraphs, wrapped; what is set off by spaces is to be copied, and stays one line."""
    listed = False
    for paragraph in text.split("\n\n"):
        if listed and not paragraph.startswith("  "):
            yield ""
        listed = paragraph.startswith("  ")
        if listed:
            yield f" {paragraph}"
        else:
            yield from (f" {line}" for line in _wrapped(paragraph, width - 2))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _styled(text: str, style: str, coloured: bool) -> str:
    return f"{style}{text}{_PLAIN}" if coloured and text else text


def _width() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_WHEN_PIPED
    except (OSError, ValueError):
        return WIDTH_WHEN_PIPED


def panels_of(rows: Iterable[tuple[str, tuple[str, str]]]) -> list[Panel]:
    """Returns rows by the panel that each names, in the order of the first of each."""
    found: dict[str, list[tuple[str, str]]] = {}
    for title, row in rows:
        found.setdefault(title, []).append(row)
    return [Panel(title, listed) for title, listed in found.items()]
