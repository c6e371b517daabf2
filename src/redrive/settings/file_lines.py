"""Finds where in ``redrive.toml`` a setting stands, for errors about it: the parser does not tell."""

from __future__ import annotations

import re
from collections.abc import Collection

from redrive.settings.sources import file_path

_TABLE = re.compile(r"\s*\[+\s*([^\[\]]+?)\s*\]+")
_KEY = re.compile(r"""\s*["']?([\w-]+)["']?\s*[.=]""")


def place_of(names: Collection[str], table: str | None = None) -> str:
    """Returns the file, and the line of the first of these names: at its top, or in the table of this name."""
    path, current = file_path(), ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found, key = _TABLE.match(line), _KEY.match(line)
        if found is not None:
            current = found[1].strip("\"'")
            if current.partition(".")[0] in names and table is None:
                return f"{path}, line {number}, [{current}]"
        elif key is not None and key[1] in names and current in ("", table):
            return f"{path}, line {number}" + (f", [{current}]" if current else "")
    return str(path)
