"""The record of an experiment, in Markdown, with everything filled in."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

from redrive.errors import InvalidInput
from redrive.files import PRIVATE_FOLDER, write_private
from redrive.version import __version__
from redrive_kit.labs.kit.facts import oldest_words
from redrive_kit.labs.kit.lab_run import LabRun
from redrive_kit.labs.options import LabOptions

COLUMNS = ("when", "time", "pending", "processing", "done", "failed", "stuck", "oldest pending")


def prepare(folder: Path) -> None:
    """Makes the folder of records, before an experiment takes its time."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written to: {error.strerror}", hint="--report DIR") from None


def write_report(lab: LabRun, options: LabOptions) -> Path:
    """Writes the record of one; returns where it is."""
    path = options.report / f"lab{lab.number}-{lab.began:%Y%m%dT%H%M%SZ}.md"
    with write_private(path) as out:
        out.write("\n".join(text_of(lab, options)) + "\n")
    return path


def text_of(lab: LabRun, options: LabOptions) -> list[str]:
    """Returns the record, line by line."""
    metrics = sorted({name for facts in lab.facts for name in facts.metrics})
    taken = [facts for facts in lab.facts if facts.metrics]
    return [
        f"# Lab {lab.number}: {lab.title}",
        "",
        f"- verdict: **{'OK' if lab.ok else 'FAIL'}**",
        f"- conclusion: {lab.conclusion}",
        f"- when: {lab.began.isoformat(timespec='seconds')}, {lab.seconds:.0f} s",
        f"- operator: {options.by}",
        f"- redrive {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "",
        *_section("Parameters", _table(("parameter", "value"), lab.parameters.items())),
        *_section("What was done", [f"- {note}" for note in lab.notes]),
        *_section("What must be seen", _table(("expectation", "seen", ""), _expectations(lab))),
        *_section("Facts, by the view search_outbox_events", _table(COLUMNS, _facts(lab))),
        *_section(
            "Metrics of the worker",
            _table(
                ("metric", *(one.when for one in taken)),
                ((name, *(_number(one.metrics.get(name)) for one in taken)) for name in metrics),
            ),
        ),
        *_section("Log lines", [f"    {line}" for line in lab.lines]),
    ]


def _expectations(lab: LabRun) -> Iterable[tuple[str, str, str]]:
    for one in lab.expectations:
        yield one.what, one.seen or ("yes" if one.holds else "no"), "OK" if one.holds else "**FAIL**"


def _facts(lab: LabRun) -> Iterable[tuple[str, ...]]:
    for one in lab.facts:
        numbers = (one.pending, one.processing, one.done, one.failed, one.stuck)
        oldest = "-" if one.oldest is None else oldest_words(one.oldest)
        yield one.when, f"{one.at:%H:%M:%S}", *map(str, numbers), oldest


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""] if lines else []


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = tuple(head)
    body = [_row(row) for row in rows]
    return [_row(head), _row("---" for _ in head), *body] if body else []


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
