"""A table as the source of a projection: read through the store, in its database, and never written to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.outbox.event import split_key
from redrive.outbox.source import Page, Record, Source, Together, source_of
from redrive.outbox.triggers import postgres, sqlite
from redrive.outbox.triggers.table_mapping import SEQUENCE, TableMapping, map_table, name, shape_of, text

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection

SECONDS = 300.0  # a query may take: it sorts a large table
_MARK = re.compile(r"redrive outbox (\{.*?\})(?: \*/|$)", re.DOTALL)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
# Without a length these types have one of 1, which would cut a key to its first character.
_UNLIMITED = {"character": "bpchar", "bit": "bit varying"}
# SQLite writes 15 digits of a number into JSON, and no bytes.
_EXACTLY = "case typeof({key}) when 'real' then printf('%!.17g', {key}) when 'blob' then hex({key}) else {key} end"
_AFFINE = re.compile("int|char|clob|text")  # SQLite compares these with text by their own type
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True, frozen=True)
class Table:
    """A table without a trigger as a source: ``app.outbox.projection(…, source=Table("notes"))``. Options are those of
    ``redrive outbox trigger``, but that ``version`` has to be a column: only a trigger counts by itself."""

    table: str
    entity_type: str | None = None
    id: str | None = None
    version: str = "version"
    columns: Sequence[str] | None = None


async def table_source(store: Store, projection: str, table: Table, *, documents: bool = True) -> TableSource:
    """Returns a table as the source of a projection."""
    if table.version == SEQUENCE:
        raise InvalidInput(
            f"the source {table.table!r} has no versions without a trigger",
            hint="version= names a column; or leave source= out: a table with a trigger is found by itself",
        )
    shape = await shape_of(store, table.table)
    options: dict[str, Any] = {"entity_type": table.entity_type, "id": table.id, "columns": table.columns}
    return TableSource(store, map_table(shape, projection, version=table.version, **options), documents=documents)


async def triggers_source(store: Store, projection: str, *, documents: bool) -> Source | None:
    """Returns the tables whose triggers feed a projection, as its source; None where there are none."""
    rows = await store.sql.feature_rows("outbox", "trigger_marks")
    found = [TableMapping.of(json.loads(mark[1])) for row in rows if (mark := _MARK.search(row["mark"]))]
    own: dict[str, Source] = {
        one.entity_type: TableSource(store, one, documents=documents) for one in found if one.projection == projection
    }
    if not own:
        return None
    return next(iter(own.values())) if len(own) == 1 else Together(own)


class TableSource:
    """One table. What it reads comes as one JSON text of a page, whatever the types of its columns."""

    def __init__(self, store: Store, mapping: TableMapping, *, documents: bool) -> None:
        self.mapping = mapping
        self._documents = documents
        self._store = store
        self._on_postgres = bool(mapping.schema)
        self._key = f"t.{name(mapping.id)}"
        self._as_text = f"{self._key}::text" if self._on_postgres else f"cast({self._key} as text)"

    async def page(self, after: str | None, limit: int) -> Page:
        where = "true" if after is None else f"{self._key} > {self._place(after)}"
        rows = await self._records(f"where {where} order by {self._key} limit {int(limit)}")
        place = self._place_of(rows[-1]) if len(rows) == limit else None
        if place is not None and place == after:
            raise InvalidInput(
                f"reading {self.mapping.table} does not get past {place}",
                hint=f"its key {self.mapping.id} does not come back as it was read; name another column with --id",
            )
        return Page([self._record(row) for row in rows], place)

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        ids = [one for key in keys if (one := self._id_in(key)) is not None]
        where = self._among(ids)
        return [self._record(row) for row in await self._records(f"where {where}")] if where else []

    async def count(self) -> int:
        """Returns how many entities there are."""
        return int(await self._store.sql.answer(f"select count(*) {self._from}", SECONDS))

    # -- its statements --------------------------------------------------------------------------------------------

    @property
    def _from(self) -> str:
        one = self.mapping
        table = f"{name(one.schema)}.{name(one.table)}" if self._on_postgres else name(one.table)
        if one.version:
            return f"from {table} t"
        versions = postgres.versions_of(one) if self._on_postgres else sqlite.versions_of(one)
        return f"from {table} t left join {versions} v on v.id = {self._as_text}"

    @property
    def _version(self) -> str:
        """The version of a row; of those that are older than the trigger, 0."""
        if self.mapping.version is None:
            return "coalesce(v.version, 0)"
        largest = "greatest" if self._on_postgres else "max"
        return f"{largest}(coalesce(t.{name(self.mapping.version)}, 0), 0)"

    @property
    def _document(self) -> str:
        if not self._documents:
            return "null"
        if self._on_postgres:
            return postgres.document_of(self.mapping, "t")
        return f"json({sqlite.document_of(self.mapping, 't', list(self.mapping.columns or ()))})"

    async def _records(self, where: str) -> list[Any]:
        if self._on_postgres:  # as text: a numeric would be rounded on its way through JSON's numbers
            place = f"to_json({self._key}) #>> '{{}}' as d"
        else:
            place = f"{_EXACTLY.format(key=self._key)} as d, typeof({self._key}) as e"
        wanted = f"{self._as_text} as a, {self._version} as b, {self._document} as c, {place}"
        return await self._rows(wanted, "a, b, c, d" if self._on_postgres else "a, b, c, d, e", where)

    async def _rows(self, wanted: str, names: str, where: str) -> list[Any]:
        """Returns rows as lists, in their order."""
        inner = f"select {wanted} {self._from} {where}"
        if self._on_postgres:
            query = f"select coalesce(json_agg(json_build_array({names})), '[]')::text from ({inner}) r"  # noqa: S608
        else:
            parts = names.replace("c", "json(c)")
            query = f"select json_group_array(json_array({parts})) from ({inner}) r"  # noqa: S608
        found: list[Any] = json.loads(await self._store.sql.answer(query, SECONDS))
        return found

    def _record(self, row: Sequence[Any]) -> Record:
        return Record(self.mapping.entity_type, row[0], row[1], row[2])

    def _place_of(self, row: Sequence[Any]) -> str:
        """Returns the place behind a row. On SQLite any column can hold any type, and numbers come before texts: the
        place says which it is."""
        return str(row[3]) if self._on_postgres else json.dumps([row[4], row[3]], ensure_ascii=False)

    def _place(self, after: str) -> str:
        """Returns a place as a value of the key's own type."""
        if self._on_postgres:
            kind = self.mapping.id_type
            return f"{text(after)}::{_UNLIMITED.get(kind, kind)}"
        kind, value = json.loads(after)
        if kind in ("integer", "real"):
            return repr(int(value) if kind == "integer" else float(value))
        return text(value) if kind == "text" else f"X{text(value)}"

    def _id_in(self, key: str) -> str | None:
        entity_type, found = split_key(key)
        return found if entity_type == self.mapping.entity_type else None

    def _among(self, ids: Sequence[str]) -> str:
        """Returns the condition for these ids, such that the index of the key is used where its type is known; empty:
        none of them can be there."""
        kind, subject, values = self.mapping.id_type, self._as_text, [text(one) for one in ids]
        if kind in ("text", "character varying") or (not self._on_postgres and _AFFINE.search(kind)):
            subject = self._key
        elif kind in ("smallint", "integer", "bigint"):
            values, subject = [one for one in ids if _INTEGER.fullmatch(one)], self._key
        elif kind == "uuid":
            values, subject = [f"{text(one)}::uuid" for one in ids if _UUID.fullmatch(one)], self._key
        return f"{subject} in ({', '.join(values)})" if values else ""


async def source_for(store: Store, projection: Projection, *, documents: bool = True) -> Source:
    """Returns the source of a projection: the declared one, or the tables whose triggers feed it. Without ``documents``
    keys and versions of tables are read alone."""
    declared = projection.source
    if isinstance(declared, str | Table):
        table = Table(declared) if isinstance(declared, str) else declared
        return await table_source(store, projection.name, table, documents=documents)
    if declared is not None:
        return source_of(declared)
    found = await triggers_source(store, projection.name, documents=documents)
    if found is None:
        raise InvalidInput(
            f"the projection {projection.name} has no source to read from",
            hint=f"name a table: app.outbox.projection({projection.name!r}, …, source=Table('…', version='…')), or "
            f"declare a class: @app.outbox.source({projection.name!r}), in the application of --app module:app (or "
            f"REDRIVE_APP); or give a table its trigger: redrive outbox trigger TABLE --projection {projection.name}",
        )
    return found
