"""Loads named SQL statements from ``.sql`` files: ``-- name: what it is for`` starts each."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- (\w+): .*$", re.MULTILINE)


def folder_of(package: str) -> Traversable | None:
    """Returns where a package has its files; None for a single module, which has none."""
    return files(package) if hasattr(import_module(package), "__path__") else None


def has_file(package: str, filename: str) -> bool:
    folder = folder_of(package)
    return folder is not None and folder.joinpath(filename).is_file()


@cache
def statements(package: str, filename: str) -> dict[str, str]:
    """Returns the statements of a file by their names."""
    folder = folder_of(package)
    text = "" if folder is None else folder.joinpath(filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
