"""How a table becomes a projection's entities: which columns are the id, the version and the document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.task import check_text
from redrive.outbox.event import DEFAULT_MAX_ATTEMPTS, check_projection

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

MOST_BYTES = 63  # PostgreSQL cuts longer names
SEQUENCE = "sequence"  # versions of the trigger's own, where the table has none
_INTEGERS = ("smallint", "integer", "bigint")


def name(text: str) -> str:
    """Returns a name in quotes, as both databases read it."""
    if "\0" in text:
        raise InvalidInput("a name cannot have a NUL character")
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    """Returns a text in quotes, as both databases read it."""
    if "\0" in value:
        raise InvalidInput("a text cannot have a NUL character")
    return "'" + value.replace("'", "''") + "'"


def own_name(*parts: str) -> str:
    """Returns the name of something of ours that belongs to these, shortened where it is too long."""
    whole = "_".join(parts)
    if len(whole.encode()) <= MOST_BYTES:
        return whole
    tail = "_" + hashlib.sha256(whole.encode()).hexdigest()[:10] + "_" + parts[-1][:12]
    kept = whole.encode()[: MOST_BYTES - len(tail.encode())].decode("utf-8", "ignore")
    return kept + tail


def remark(value: str) -> str:
    """Returns a text for a comment of one line: nothing in it can end the comment."""
    return "".join(one if one.isprintable() else "?" for one in value)


def mark(facts: dict[str, Any]) -> str:
    """Returns JSON that can stand in a comment: no ``*/``, and only ASCII."""
    return json.dumps(facts).replace("/", "\\/")


def dollar(body: str) -> str:
    """Returns a tag for dollar quotes that the body does not have."""
    tag, n = "$redrive$", 0
    while tag in body:
        n += 1
        tag = f"$redrive{n}$"
    return tag


@dataclass(slots=True, frozen=True)
class Shape:
    """A table as the database describes it; on SQLite there is no schema. ``key``: columns of its primary key;
    ``uniques``: columns that are unique by themselves."""

    schema: str
    table: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    uniques: frozenset[str]
    partitioned: bool = False

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(slots=True, frozen=True)
class TableMapping:
    """A table of a projection. ``version``: a column; None: the trigger counts. ``columns``: None for all, also those
    that come later, which only PostgreSQL can."""

    projection: str
    schema: str
    table: str
    entity_type: str
    id: str
    id_type: str
    version: str | None = None
    columns: tuple[str, ...] | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    def facts(self) -> dict[str, Any]:
        """Returns it as a trigger's mark keeps it."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> TableMapping:
        """Returns what a mark says; what a later version adds is passed over."""
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        if known.get("columns") is not None:
            known["columns"] = tuple(known["columns"])
        return cls(**known)


async def shape_of(store: Store, table: str) -> Shape:
    """Returns the table of this name, of the store's own database."""
    rows = await store.sql.feature_rows("outbox", "table_shape", table)
    if not rows:
        raise NotFound(
            f"the store's database has no table {table!r}",
            hint="a trigger writes events in the table's own transaction: the table is in redrive's database, "
            "as NAME or SCHEMA.NAME, without the quotes of SQL",
        )
    if len(rows) > 1:
        names = ", ".join(sorted(f"{row['schema']}.{row['table']}" for row in rows))
        raise InvalidInput(f"there are several tables {table!r}", hint=f"say which: {names}")
    [row] = rows
    if row["kind"] != "table":
        raise InvalidInput(
            f"{table!r} is a view, which has no rows of its own", hint="give the tables it is made of a trigger each"
        )
    if row["schema"] == "redrive" or row["table"].startswith("redrive_"):
        raise InvalidInput(f"{table!r} is a table of redrive", hint="name a table of your own")
    return Shape(
        row["schema"],
        row["table"],
        dict(json.loads(row["columns"])),
        tuple(json.loads(row["key"] or "[]")),
        frozenset(json.loads(row["uniques"] or "[]")),
        bool(row["partitioned"]),
    )


def map_table(
    shape: Shape,
    projection: str,
    *,
    entity_type: str | None = None,
    id: str | None = None,
    version: str = SEQUENCE,
    columns: Sequence[str] | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> TableMapping:
    """Returns what the table becomes in a projection; refused where that cannot be."""
    try:
        check_projection(projection)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    called = shape.table if entity_type is None else entity_type
    if not called or ":" in called:
        raise InvalidInput(f"the entity type {called!r} cannot be used", hint="--entity-type: a word without a colon")
    check_text(called, "entity type")
    key = _id_of(shape, id)
    for column in columns or ():
        _insist(shape, column)
    chosen = tuple(columns or (() if shape.schema else shape.columns))
    return TableMapping(
        projection,
        shape.schema,
        shape.table,
        called,
        key,
        shape.columns[key],
        None if version == SEQUENCE else _version_of(shape, version),
        chosen or None,
        max_attempts,
    )


def _id_of(shape: Shape, given: str | None) -> str:
    if given is not None:
        _insist(shape, given)
        if shape.key != (given,) and given not in shape.uniques:
            raise InvalidInput(
                f"{given!r} of {shape.shown} is not unique, so its values do not tell entities apart",
                hint="name the primary key, or a column with a unique index",
            )
        return given
    if len(shape.key) == 1:
        return shape.key[0]
    what = f"a primary key of several columns ({', '.join(shape.key)})" if shape.key else "no primary key"
    raise InvalidInput(f"{shape.shown} has {what}", hint="--id COLUMN names a column that is unique by itself")


def _version_of(shape: Shape, column: str) -> str:
    _insist(shape, column)
    if shape.columns[column] not in _INTEGERS and (shape.schema or "int" not in shape.columns[column]):
        raise InvalidInput(
            f"{column!r} of {shape.shown} is of the type {shape.columns[column] or 'unknown'}, not a whole number",
            hint="--version names a whole number that grows with each update; without it, the trigger counts itself",
        )
    if shape.partitioned:
        raise InvalidInput(
            f"{shape.shown} is partitioned: a row that moves is deleted and inserted at one version",
            hint="leave --version out: the trigger counts itself",
        )
    return column


def _insist(shape: Shape, column: str) -> None:
    if column not in shape.columns:
        raise InvalidInput(f"{shape.shown} has no column {column!r}", hint=f"it has: {', '.join(shape.columns)}")
