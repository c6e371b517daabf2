"""Counts what there is to read: lines of Python, SQL, templates and tests by folder, and the budget beside them.

It prints and refuses nothing: a number is a reason to look, and the reader decides.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNTIME, KIT, TESTS = ROOT / "src", ROOT / "kit", ROOT / "tests"
PAGES = ("html", "js", "css")


def files(folder: Path, *endings: str) -> list[Path]:
    return sorted(path for ending in endings for path in folder.rglob(f"*.{ending}") if "__pycache__" not in path.parts)


def lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def by_folder(root: Path, *endings: str) -> Counter[str]:
    """Returns the lines in each folder of a root; those beside the folders are ``.``."""
    counts: Counter[str] = Counter()
    for path in files(root, *endings):
        inside = path.relative_to(root).parts
        counts[inside[0] if len(inside) > 1 else "."] += lines([path])
    return counts


def budget() -> list[tuple[str, int, int | None]]:
    """Returns what is counted, how much of it there is, and at most how much there should be."""
    runtime, kit, tests = (files(folder, "py") for folder in (RUNTIME, KIT, TESTS))
    return [
        ("runtime, lines of Python", lines(runtime), 70_000),
        ("runtime, files of Python", len(runtime), 520),
        ("kit, lines of Python", lines(kit), 13_000),
        ("kit, files of Python", len(kit), None),
        ("SQL, lines", lines(files(RUNTIME, "sql")), 9_500),
        ("pages (html, js, css), lines", lines(files(RUNTIME, *PAGES)), None),
        ("tests, lines of Python", lines(tests), 54_000),
        ("tests, files of Python", len(tests), None),
    ]


def report() -> str:
    """Returns the folders of each root, then the sums with their budget."""
    package = RUNTIME / "redrive"
    parts = [
        ("src/redrive, Python", by_folder(package, "py")),
        ("src/redrive, SQL", by_folder(package, "sql")),
        ("src/redrive, pages", by_folder(package, *PAGES)),
        ("kit, Python", by_folder(KIT / "redrive_kit", "py")),
        ("tests, Python", by_folder(TESTS, "py")),
    ]
    rows = []
    for title, counts in parts:
        if counts:
            rows.append(f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common()))
    rows += ["", f"{'':<30}{'now':>10}{'at most':>10}"]
    for name, count, most in budget():
        over = "  over by " + format(count - most, ",") if most is not None and count > most else ""
        rows.append(f"{name:<30}{count:>10,}{'' if most is None else format(most, ','):>10}{over}")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
