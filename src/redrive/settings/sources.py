"""Where settings come from: the environment, and ``redrive.toml``."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from redrive.errors import WrongSetting
from redrive.settings.declare import Setting, Values, fields_by_name, fields_of
from redrive.settings.values import is_document, may_be_text
from redrive.settings.wording import SEE

CONFIG_FILE = "redrive.toml"
AROUND = 20  # characters that are quoted before and after a mistake


def environment(kind: type[Values]) -> dict[str, Any]:
    """Returns what the environment has of a class, by field; an empty variable is none."""
    found = {field: (one, os.environ.get(one.name)) for field, one in fields_of(kind).items()}
    return {field: _decoded(one, text) for field, (one, text) in found.items() if text}


def file_values(kind: type[Values], written: Iterable[tuple[str, Any]], whose: str) -> dict[str, Any]:
    """Returns values of the file by field: they stand there by the field's name, or by the variable's."""
    known, found = fields_by_name(kind), dict[str, Any]()
    for name, value in written:
        if known[name] in found:
            raise WrongSetting(f"{file_path()} has {known[name]} of {whose} twice", hint="remove one of them")
        found[known[name]] = value
    return found


def file_path() -> Path:
    """Returns ``redrive.toml`` in the working directory, or the file named by ``REDRIVE_CONFIG``."""
    return Path(os.environ.get("REDRIVE_CONFIG") or CONFIG_FILE)


def read_file() -> dict[str, Any]:
    """Returns what stands in the file; nothing where there is none."""
    path = file_path()
    if not path.is_file():
        if os.environ.get("REDRIVE_CONFIG"):
            raise WrongSetting(f"the file named by REDRIVE_CONFIG does not exist: {path}")
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise WrongSetting(f"{path} cannot be read: {error}") from None


def _decoded(one: Setting, text: str) -> Any:
    """Returns a list or map from JSON. One in which a name stands twice is refused: one of the two would be lost."""
    if one.parse is not None or not is_document(one.kind):
        return text
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        if may_be_text(one.kind):
            return text
        example = f"for example {one.name}='{one.examples[0]}'; " if one.examples else ""
        said = _mistake(text, error, quoted=one.repr)
        raise WrongSetting(f"settings cannot be used: {one.name} {said}", hint=f"{example}{SEE}") from None


def _mistake(text: str, error: Exception, *, quoted: bool) -> str:
    """Returns what is wrong with a map: where it stops being JSON, with what is written around it unless that may be a
    secret, or what stands there twice."""
    if isinstance(error, json.JSONDecodeError):
        around = text[max(error.pos - AROUND, 0) : error.pos + AROUND]
        where = f"is not JSON: {error.msg.lower()} at character {error.pos + 1}"
        return f"{where}, near {around!r}" if quoted else where
    return f"has {str(error)!r} twice" if isinstance(error, _Twice) else "is not JSON"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


class _Twice(ValueError):
    pass
