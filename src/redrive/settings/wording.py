"""Says what is wrong with settings that cannot be used: which one, what, and how instead."""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings

from redrive.errors import ConfigError, WrongSetting
from redrive.settings.declare import fields_by_name, name_of
from redrive.settings.sources import json_mistake

T = TypeVar("T")
SEE = "correct or remove it; then redrive settings lists all there are"


def made(kind: type[BaseSettings], make: Callable[[], T]) -> T:
    """Returns what ``make`` returns; what it finds wrong is said by the names that people have set."""
    try:
        return make()
    except ValidationError as error:
        problems = [f"{_label(kind, problem['loc'])}: {_told(kind, problem)}" for problem in error.errors()]
        raise WrongSetting("settings cannot be used: " + "; ".join(problems), hint=SEE) from None
    except ConfigError:
        raise
    except Exception as error:  # pydantic-settings wraps JSON mistakes in its own error
        raise _bad_json(kind, error) from None


def guess(name: str, known: Iterable[str]) -> str:
    """Returns which known name may be meant, in brackets; nothing where none is like it."""
    close = next(iter(difflib.get_close_matches(name.lower(), known, 1)), None)
    return f" (did you mean {close}?)" if close else ""


def _bad_json(kind: type[BaseSettings], error: Exception) -> ConfigError:
    """pydantic-settings names the field that it could not read: neither the variable it came from, nor the place."""
    for field, info in kind.model_fields.items():
        if f'"{field}"' in str(error):
            name = name_of(kind, field)
            said = f"settings cannot be used: {name} {json_mistake(os.environ.get(name, ''))}"
            example = f"for example {name}='{info.examples[0]}'; " if info.examples else ""
            return WrongSetting(said, hint=f"{example}{SEE}")
    return WrongSetting(f"settings cannot be used: {error}", hint=SEE)


def _told(kind: type[BaseSettings], problem: Any) -> str:
    """Returns what is wrong, and for a field that there is not, which there are."""
    if problem["type"] == "extra_forbidden":
        return f"there is no such field; there are {', '.join(_fields_beside(kind, problem['loc']))}"
    return str(problem["msg"]).removeprefix("Value error, ")


def _fields_beside(kind: type[BaseSettings], location: tuple[int | str, ...]) -> list[str]:
    """Returns the fields that there are where an unknown one stands: of the class, or of the models that one of its
    maps holds."""
    field = fields_by_name(kind).get(str(location[0]).lower()) if len(location) > 1 else None
    inner: Any = None if field is None else kind.model_fields[field].annotation
    models = (one for one in (inner, *typing.get_args(inner)) if isinstance(one, type) and issubclass(one, BaseModel))
    return list(next(models, kind).model_fields)


def _label(kind: type[BaseSettings], location: tuple[int | str, ...]) -> str:
    first = str(location[0]) if location else "settings"
    name = name_of(kind, first) if first in kind.model_fields else first
    return ".".join([name, *map(str, location[1:])])
