"""Where settings come from: the environment and ``redrive.toml``; and how it is said what is wrong with one: which,
where, what, and how instead."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.errors import ConfigError, WrongSetting
from redrive.settings.declare import FeatureSettings, Setting, Values, fields_by_name, fields_of, name_of, names_of
from redrive.settings.values import Problem, Unfit, is_document, may_be_text

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

T = TypeVar("T")
CONFIG_FILE = "redrive.toml"
SEE = "correct or remove it; then redrive settings lists all there are"
AROUND = 20  # characters that are quoted before and after a mistake
# What begins like this is redrive's own: a process that does not know a feature warns of everything else there.
OURS = ("REDRIVE_", "TASK_WORKER_", "TASK_AUDIT_", "INTERNAL_WORKER_")
Steps = tuple[str, ...]  # the way to a setting in the file: tables, and its key
_TABLE = re.compile(r"\s*(\[+)\s*([^\[\]]+?)\s*\]+\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def environment(kind: type[Values]) -> dict[str, Any]:
    """Returns what the environment has of a class, by field; an empty variable is none."""
    found = {field: (one, os.environ.get(one.name)) for field, one in fields_of(kind).items()}
    return {field: _decoded(one, text) for field, (one, text) in found.items() if text}


def file_values(kind: type[Values], entries: Iterable[tuple[str, Any]], whose: str) -> dict[str, Any]:
    """Returns values of the file by field: they stand there by the field's name, or by the variable's."""
    known, found = fields_by_name(kind), dict[str, Any]()
    for name, value in entries:
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
        problem = _mistake(text, error, quoted=one.repr)
        raise WrongSetting(f"settings cannot be used: {one.name} {problem}", hint=f"{example}{SEE}") from None


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


# -- settings of features ----------------------------------------------------------------------------------------------


def load_feature(feature: Feature) -> FeatureSettings:
    """Returns the settings of a feature that has some, as they are configured."""
    kind = check_kind(feature)
    from_environment, from_file = environment(kind), file_part(feature)

    def make() -> FeatureSettings:
        return kind.configured(environment=from_environment, file=from_file)

    def in_file(field: str, *below: str) -> str:
        name = name_of(kind, field).lower()
        return place_of(*((*table, one, *below) for table in ((feature.name,), ()) for one in (field, name)))

    return explained(kind, make, in_file)


def check_kind(feature: Feature) -> type[FeatureSettings]:
    """Returns the class of a feature's settings; one that would be mistaken for something else is refused."""
    kind = feature.settings
    if not (isinstance(kind, type) and issubclass(kind, FeatureSettings)):
        raise ConfigError(f"the settings of feature {feature.name!r} are no class of FeatureSettings")
    for name in names_of(kind):
        if name != name.upper():
            raise ConfigError(f"{kind.__name__}.{name} has no name", hint="declare it with setting(NAME, default)")
        if name.startswith(OURS):
            raise ConfigError(
                f"{name} of feature {feature.name!r} begins like a setting of redrive's own", hint="rename it"
            )
    return kind


def file_part(feature: Feature) -> dict[str, Any]:
    """Returns what the file says about a feature, by field: at its top, or in the table that is named after it."""
    kind, file = check_kind(feature), read_file()
    known = fields_by_name(kind)
    table = file.get(feature.name, {})
    if not isinstance(table, dict):
        raise WrongSetting(f"{file_path()}: {feature.name} is a table, [{feature.name}]", hint=SEE)
    if unknown := sorted(set(table) - set(known)):
        listed = ", ".join(f"{feature.name}.{name}{guess(name, known)}" for name in unknown)
        raise WrongSetting(f"{file_path()} has unknown settings: {listed}", hint=SEE)
    tops = {name.lower() for name in names_of(kind)}
    entries = [*((name, file[name]) for name in sorted(tops & set(file))), *table.items()]
    return file_values(kind, entries, feature.name)


# -- where in the file -------------------------------------------------------------------------------------------------


def place_of(*paths: Steps) -> str:
    """Returns the file, and the line that has most of one of these paths: its key, else the table around it."""
    best, place = (False, 0), str(file_path())
    for number, table, path in _lines():
        found = max((_likeness(path, wanted) for wanted in paths), default=(False, 0))
        if found > best:
            best = found
            place = f"{file_path()}, line {number}" + (f", [{table}]" if table else "")
    return place


def _lines() -> Iterable[tuple[int, str, Steps]]:
    """Yields each line that has a table or a key: its number, the table it is in, and its whole path. Of tables of one
    name, ``[[name]]``, each has its number in the path."""
    table, path, seen = "", Steps(), dict[str, int]()
    for number, line in enumerate(file_path().read_text(encoding="utf-8").splitlines(), 1):
        if (found := _TABLE.match(line)) is not None:
            table, path = found[2], _parts(found[2])
            if found[1] == "[[":
                path = (*path, str(seen.get(table, 0)))
                seen[table] = seen.get(table, 0) + 1
            yield number, table, path
        elif (key := _KEY.match(line)) is not None:
            yield number, table, (*path, *_parts(key[1]))


def _parts(text: str) -> Steps:
    return tuple(found[1] or found[2] or found[3] or "" for found in _PART.finditer(text))


def _likeness(path: Steps, wanted: Steps) -> tuple[bool, int]:
    """Returns whether a line is about what is wanted, and how many steps of the way there it goes."""
    same = 0
    while same < min(len(path), len(wanted)) and path[same] == wanted[same]:
        same += 1
    return same == len(wanted), same


# -- what is wrong -----------------------------------------------------------------------------------------------------


def explained(kind: type[Values], make: Callable[[], T], in_file: Callable[..., str] = lambda *_: "") -> T:
    """Returns what ``make`` returns; what it finds wrong is said by the names that people have set. ``in_file`` says
    where a field stands, and what is below it."""
    try:
        return make()
    except Unfit as error:
        problems = [_describe(kind, problem, in_file) for problem in error.problems]
        hints = dict.fromkeys(problem.hint or SEE for problem in error.problems)
        raise WrongSetting("settings cannot be used: " + "; ".join(problems), hint="; ".join(hints)) from None


def guess(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Returns which known name may be meant, in brackets; nothing where none is so much ``alike``."""
    close = next(iter(difflib.get_close_matches(name.lower(), known, 1, alike)), None)
    return f" (did you mean {close}?)" if close else ""


def _describe(kind: type[Values], problem: Problem, in_file: Callable[..., str]) -> str:
    field, *rest = map(str, problem.place)
    name = fields_of(kind)[field].name if field in fields_of(kind) else field
    where = in_file(field, *rest) if problem.source == "file" else ""
    return f"{'.'.join([name, *rest])}: {problem.message}{f' ({where})' if where else ''}"
