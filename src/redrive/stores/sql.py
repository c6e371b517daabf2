"""Loads named SQL statements from ``.sql`` files: ``-- name: what it is for`` starts each."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- (\w+): .*$", re.MULTILINE)


@cache
def statements(package: str, filename: str) -> dict[str, str]:
    """Returns the statements of a file by their names."""
    text = files(package).joinpath(filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
