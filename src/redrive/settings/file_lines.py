"""Finds where in ``redrive.toml`` a setting stands, for errors about it: the parser does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from redrive.settings.sources import file_path

Path = tuple[str, ...]
_TABLE = re.compile(r"\s*(\[+)\s*([^\[\]]+?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def place_of(*paths: Path) -> str:
    """Returns the file, and the line that has most of one of these paths: its key, else the table around it."""
    best, place = (False, 0), str(file_path())
    for number, table, path in _lines():
        found = max((_likeness(path, wanted) for wanted in paths), default=(False, 0))
        if found > best:
            best = found
            place = f"{file_path()}, line {number}" + (f", [{table}]" if table else "")
    return place


def _lines() -> Iterable[tuple[int, str, Path]]:
    """Yields each line that has a table or a key: its number, the table it is in, and its whole path. Of tables of one
    name, ``[[name]]``, each has its number in the path."""
    table, path, seen = "", Path(), dict[str, int]()
    for number, line in enumerate(file_path().read_text(encoding="utf-8").splitlines(), 1):
        if (found := _TABLE.match(line)) is not None:
            table, path = found[2], _parts(found[2])
            if found[1] == "[[":
                path = (*path, str(seen.get(table, 0)))
                seen[table] = seen.get(table, 0) + 1
            yield number, table, path
        elif (key := _KEY.match(line)) is not None:
            yield number, table, (*path, *_parts(key[1]))


def _parts(text: str) -> Path:
    return tuple(found[1] or found[2] or found[3] or "" for found in _PART.finditer(text))


def _likeness(path: Path, wanted: Path) -> tuple[bool, int]:
    """Returns whether a line is about what is wanted, and how many steps of the way there it goes."""
    same = 0
    while same < min(len(path), len(wanted)) and path[same] == wanted[same]:
        same += 1
    return same == len(wanted), same
