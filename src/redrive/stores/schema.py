"""Loads the schema of each store and feature: numbered steps, applied in order, and a set of functions.

Steps make and change tables, and are frozen when they are released. Functions, views and triggers are read from
``functions/*.sql`` each time the schema is brought up, as one set under a rising number: a newer set replaces an older
one, and an older one never a newer one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from redrive.errors import InvalidInput, SchemaError
from redrive.kernel.feature import Feature
from redrive.stores.refusals import migrate_command
from redrive.stores.sql import folder_of

_INDEX = re.compile(
    r"^(create) (?:unique )?index (?:if not exists )?(\w+)|^(drop) index (?:if exists )?(?:redrive\.)?(\w+)",
    re.MULTILINE,
)
_BEFOREHAND = re.compile(r"^-- beforehand: (create index concurrently if not exists (\w+) .+);$", re.MULTILINE)
_TABLE = re.compile(r"\bcreate\s+(?:unlogged\s+)?table\s+(?:if\s+not\s+exists\s+)?([\w.\"]+)", re.IGNORECASE)
_COMMENT = re.compile(r"--.*")
_FILE = re.compile(r"(\d{4})_(\w+)\.(up|down)\.sql")


@dataclass(slots=True, frozen=True)
class Migration:
    """One step. ``breaking``: code that does not know it must not run against a database that has it."""

    version: int
    name: str
    up: str
    down: str

    @property
    def breaking(self) -> bool:
        return self.up.lstrip().lower().startswith("-- breaking")

    @property
    def digest(self) -> str:
        """Returns a hash of the step, to tell what was run from what is to be run: a released step never changes."""
        return hashlib.sha256(self.up.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"


@dataclass(slots=True, frozen=True)
class Functions:
    """Everything in a folder of functions, as one script that can be run over any older one."""

    number: int
    script: str

    @property
    def label(self) -> str:
        return f"functions_{self.number}"


@dataclass(slots=True, frozen=True)
class Line:
    """The schema of one owner: redrive's own (``feature`` is empty), or that of a feature."""

    feature: str
    steps: tuple[Migration, ...]
    functions: Functions | None = None

    def label(self, part: Migration | Functions) -> str:
        return f"{self.feature}/{part.label}" if self.feature else part.label

    def newer_functions(self, number: int) -> Functions | None:
        """Returns the functions that replace those of a database, by their number; None where those are as new."""
        return self.functions if self.functions is not None and self.functions.number > number else None


def applied_steps(
    lines: Iterable[Line], rows: Iterable[tuple[str, int, str, datetime]]
) -> dict[str, tuple[tuple[int, str, datetime], ...]]:
    """Returns the steps that were applied, by owner: redrive's own under the empty name."""
    found: dict[str, list[tuple[int, str, datetime]]] = {line.feature: [] for line in lines}
    for owner, version, name, at in rows:
        found.setdefault(owner, []).append((version, name, at))
    return {owner: tuple(sorted(steps)) for owner, steps in found.items()}


def foreign_owners(lines: Iterable[Line], applied: Mapping[str, object]) -> tuple[str, ...]:
    """Returns whose steps were applied that are not known here."""
    return tuple(sorted(set(applied) - {line.feature for line in lines}))


def lines_of(
    core: tuple[Migration, ...], functions: Functions | None, features: Iterable[Feature], dialect: str
) -> tuple[Line, ...]:
    """Returns redrive's own line first: features may refer to its tables and functions."""
    own = [
        Line(f.name, load(f.package, f"migrations/{dialect}"), load_functions(f.package, f"functions/{dialect}"))
        for f in features
    ]
    for line in own:
        _check_tables(line, {"sqlite": "redrive_", "postgres": "redrive."}[dialect])
    return (Line("", core, functions), *(line for line in own if line.steps))


def _check_tables(line: Line, prefix: str) -> None:
    """Refuses tables that are not named after their feature: rights are granted by that name, and nobody else's table
    has it."""
    named = f"{prefix}{line.feature}"
    for step in line.steps:
        for table in _TABLE.findall(_COMMENT.sub("", step.up)):
            if table.replace('"', "").lower() != named and not table.replace('"', "").lower().startswith(f"{named}_"):
                raise SchemaError(
                    f"{line.label(step)} makes the table {table}, which is not named after its feature",
                    hint=f"call it {named}, or {named}_…",
                )


@cache
def load(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    """Returns all migrations in a folder of a package, oldest first; gaps or a missing half are a packaging mistake."""
    found: dict[int, dict[str, str]] = {}
    home = folder_of(package)
    place = None if home is None else home.joinpath(*folder.split("/"))
    for entry in place.iterdir() if place is not None and place.is_dir() else ():
        match = _FILE.fullmatch(entry.name)
        if match:
            half = found.setdefault(int(match[1]), {"name": match[2]})
            half[match[3]] = entry.read_text(encoding="utf-8")
    for number, step in sorted(found.items()):
        for missing in {"up", "down"} - step.keys():
            raise SchemaError(
                f"the migration {number:04d}_{step['name']} of {package} has no {missing!r}",
                hint=f"write {folder}/{number:04d}_{step['name']}.{missing}.sql",
            )
    steps = [Migration(n, f["name"], f["up"], f["down"]) for n, f in sorted(found.items())]
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise SchemaError(f"the migrations of {package} are not numbered without gaps")
    return tuple(steps)


@cache
def load_functions(package: str, folder: str = "functions") -> Functions | None:
    """Returns the functions in a folder of a package, if there is one. ``number.txt`` has their number."""
    home = folder_of(package)
    place = None if home is None else home.joinpath(*folder.split("/"))
    if place is None or not place.is_dir():
        return None
    files = sorted((each for each in place.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name)
    script = "\n".join(f"-- {folder}/{each.name}\n\n{each.read_text(encoding='utf-8')}" for each in files)
    return Functions(int(place.joinpath("number.txt").read_text(encoding="utf-8").split()[0]), script)


@cache
def index_names(package: str) -> frozenset[str]:
    """Returns the indexes that the migrations make, for whoever looks whether one is missing."""
    found = dict[str, bool]()
    for step in load(package):
        for made, name, _, dropped in _INDEX.findall(step.up):
            found[name or dropped] = bool(made)
    return frozenset(name for name, there in found.items() if there)


def beforehand(step: Migration) -> list[tuple[str, str]]:
    """Returns indexes that are made while everybody works, before the step that would make them itself: each by its
    name and statement. Where they are there, the step passes them by."""
    return [(name, text) for text, name in _BEFOREHAND.findall(step.up)]


def indexed_table(statement: str) -> str:
    """Returns the table that an index of ``beforehand`` is made on."""
    return statement.partition(" on ")[2].split()[0]


def steps_up(steps: tuple[Migration, ...], version: int, to: int | None) -> list[Migration]:
    target = _target(steps, len(steps) if to is None else to)
    return [step for step in steps if version < step.version <= target]


def steps_down(steps: tuple[Migration, ...], version: int, to: int) -> list[Migration]:
    target = _target(steps, to)
    return [step for step in reversed(steps) if target < step.version <= version]


Record = Callable[[Line, Migration | Functions], str]


def scripts(lines: Sequence[Line], *, down: bool = False, to: int | None = None, record: Record) -> str:
    """Returns what ``migrate`` would run on an empty (or, for ``down``, a current) database, for review or to be run by
    hand.

    ``record`` gives the statement that notes a part as done, or as undone.
    """
    parts = [
        (line, part) for line in (reversed(lines) if down else lines) for part in _parts_of(line, down=down, to=to)
    ]
    return "\n".join(
        f"-- {line.label(part)} ({'down' if down else 'up'})\n{_text(part, down=down)}\n{record(line, part)}\n"
        for line, part in parts
    )


def missing_script(
    lines: Sequence[Line],
    rows: Sequence[Mapping[str, Any]],
    numbers: Mapping[str, int],
    where: str,
    record: Record,
) -> str:
    """Returns what brings a database up to date that has these rows of the record of steps and these sets of functions
    (their numbers by owner); empty if it is."""
    missing = []
    for line in lines:
        digests = {row["version"]: row["digest"] for row in rows if row["feature"] == line.feature}
        check_digests(line, digests, where)
        version = min(max(digests, default=0), len(line.steps))  # a newer redrive's are not ours to judge
        parts: list[Migration | Functions] = [*steps_up(line.steps, version, None)]
        newer = line.newer_functions(numbers.get(line.feature, 0))
        missing += [f"{_text(part)}\n{record(line, part)}\n" for part in (*parts, *filter(None, [newer]))]
    return "\n".join(missing)


def record_rows(applied: Iterable[tuple[str, int, str | None]]) -> list[dict[str, Any]]:
    """Returns rows of the record of steps, of which only owner, version and digest were read."""
    return [{"feature": owner, "version": version, "digest": digest} for owner, version, digest in applied]


def _text(part: Migration | Functions, *, down: bool = False) -> str:
    if isinstance(part, Functions):
        return part.script.strip()
    return (part.down if down else part.up).strip()


def _parts_of(line: Line, *, down: bool, to: int | None) -> list[Migration | Functions]:
    """Returns the parts of a line. The tables' way down takes the functions with it."""
    parts: list[Migration | Functions] = [*_steps_of(line, down=down, to=to)]
    if not down and line.functions is not None and len(parts) == len(line.steps):
        parts.append(line.functions)
    return parts


def _steps_of(line: Line, *, down: bool, to: int | None) -> list[Migration]:
    """Returns the steps of a line: those of a feature come and go with the whole of redrive's own, not with a part of
    it."""
    if line.feature and to is not None and not (down and to == 0):
        return []
    if down:
        return steps_down(line.steps, len(line.steps), 0 if to is None or line.feature else to)
    return steps_up(line.steps, 0, to)


def check_version(line: Line, version: int, needs: int, where: str, url: str) -> None:
    """Refuses a schema this code cannot work with. ``needs`` is the oldest code version the database accepts; ``url``
    is what commands call it, without a password."""
    latest = len(line.steps)
    if line.feature and version < latest:
        raise SchemaError(
            f"{where} lacks tables of the feature {line.feature!r}", hint="run: redrive migrate --app module:app"
        )
    if version == 0:
        raise SchemaError(f"{where} has no redrive schema yet", hint=f"run: {migrate_command(url)}")
    if version < latest:
        raise SchemaError(
            f"{where} has schema version {version}, this redrive needs {latest}", hint=f"run: {migrate_command(url)}"
        )
    if needs > latest:
        raise SchemaError(
            f"{where} has schema version {version}, which code older than schema {needs} must not use; "
            f"this redrive knows {latest}",
            hint="upgrade the redrive package on this host, or migrate the database down with the newer one",
        )


def check_functions(line: Line, number: int, where: str, url: str) -> None:
    """Refuses a database whose functions are older than this code."""
    if line.newer_functions(number) is not None:
        command = "redrive migrate --app module:app" if line.feature else migrate_command(url)
        raise SchemaError(f"{where} has functions of an older redrive", hint=f"run: {command}")


def check_digests(line: Line, applied: Mapping[int, str | None], where: str) -> None:
    """Refuses a database whose steps were others than ours of the same number: a step was changed after it was run."""
    for step in line.steps:
        if step.version in applied and applied[step.version] != step.digest:
            raise SchemaError(
                f"{where} was made by another {line.label(step)} than this version's", hint=_undo(line, step)
            )


def _undo(line: Line, step: Migration) -> str:
    if line.feature:
        return f"put {line.label(step)} back as it was when it was run, and write what is new as the next step"
    return "it was made by a redrive in development: use that one, or a database of its own for this one"


def needs_of(steps: tuple[Migration, ...], version: int) -> int:
    """Returns the oldest code (by the schema version it knows) that may use a database at ``version``."""
    return max((step.version for step in steps if step.breaking and step.version <= version), default=1)


def _target(steps: tuple[Migration, ...], to: int) -> int:
    if not 0 <= to <= len(steps):
        raise InvalidInput(f"there is no schema version {to}", hint=f"versions go from 0 (nothing) to {len(steps)}")
    return to


# Takes over databases whose steps were applied one by one, before 0.1.0 joined them into one for each owner. What the
# old steps had made by their end is what the joined one makes, so that only the record of steps changes. A database
# that has only some of them is refused, like any other that was made by a version in development.

RECORD = {"postgres": "redrive.migration", "sqlite": "redrive_migration"}
# The last step before, by dialect and owner: its number, and its digest.
LAST: Mapping[tuple[str, str], tuple[int, str]] = {
    ("postgres", ""): (13, "2459d2ef8ac3451c"),
    ("postgres", "batches"): (8, "6dcc88bd34648c3c"),
    ("postgres", "ledger"): (3, "765f3f973bd1c621"),
    ("postgres", "outbox"): (3, "01415de1d8d0c6a7"),
    ("postgres", "webhooks"): (4, "7ac57d47cb66b433"),
    ("sqlite", ""): (9, "0d50ba515d2fae7c"),
    ("sqlite", "batches"): (7, "5784134881ce2fd2"),
    ("sqlite", "ledger"): (2, "47507720d4929193"),
    ("sqlite", "outbox"): (5, "912d9efe5d4fb256"),
    ("sqlite", "webhooks"): (2, "ac8267cac4c273b2"),
}


def joined(dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of the record of steps as they are once the old ones are joined."""
    found = [dict(row) for row in rows]
    for line in _lines_to_join(dialect, lines, found):
        last = next(row for row in reversed(found) if row["feature"] == line.feature)
        step = line.steps[0]
        found = [row for row in found if row["feature"] != line.feature]
        found.append({**last, "version": step.version, "name": step.name, "needs": 1, "digest": step.digest})
    return found


def join_script(
    dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]], note: Callable[[Line, Migration], str]
) -> str:
    """Returns what writes the joined steps in place of the old ones; empty where there are none of those."""
    return "".join(
        f"delete from {RECORD[dialect]} where feature = '{line.feature}';\n{note(line, line.steps[0])}\n"  # noqa: S608
        for line in _lines_to_join(dialect, lines, rows)
    )


def _lines_to_join(dialect: str, lines: Sequence[Line], rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    last = {(row["feature"], row["version"]): row["digest"] for row in rows}
    found = []
    for line in lines:
        number, digest = LAST.get((dialect, line.feature), (0, ""))
        if last.get((line.feature, number)) == digest and (line.feature, number + 1) not in last:
            found.append(line)
    return found
