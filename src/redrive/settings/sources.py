"""Where settings come from: the environment, and ``redrive.toml``."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic_settings import EnvSettingsSource, NoDecode, PydanticBaseSettingsSource

from redrive.errors import WrongSetting

CONFIG_FILE = "redrive.toml"
AROUND = 20  # characters that are quoted before and after a mistake


class Environment(EnvSettingsSource):
    """The environment. A map in which a name stands twice is refused: one of the two would be lost."""

    def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
        plain = any(one is NoDecode or isinstance(one, NoDecode) for one in field.metadata)
        return value if plain else _loads(value)


class FileValues(PydanticBaseSettingsSource):
    """The top of ``redrive.toml``."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return read_file()


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


def json_mistake(text: str) -> str:
    """Returns what is wrong with a map: where it stops being JSON, with what is written around it, or what stands there
    twice."""
    try:
        _loads(text)
    except json.JSONDecodeError as error:
        around = text[max(error.pos - AROUND, 0) : error.pos + AROUND]
        return f"is not JSON: {error.msg.lower()} at character {error.pos + 1}, near {around!r}"
    except _Twice as error:
        return f"has {str(error)!r} twice"
    return "is not JSON"


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


class _Twice(ValueError):
    pass
