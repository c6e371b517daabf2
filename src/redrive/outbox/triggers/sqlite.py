"""The triggers of a table on SQLite: one for each verb, which write to redrive's tables in the same file."""

from __future__ import annotations

from redrive.outbox.triggers.table_mapping import TableMapping, mark, name, own_name, remark, text

HEAD = """\
-- Projects {table} to {projection}: each insert, update and delete becomes an event of the same transaction.
begin immediate;
"""
# Versions grow with each change, and with time: no id that comes back is taken for old, even if this table was lost.
VERSIONS = """\
create table if not exists {versions} (
  id       text primary key not null,
  version  integer not null,
  deleted  integer not null
) without rowid;
"""
NOW = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000"
NEXT = """\
  insert into {versions} (id, version, deleted)
  select {id}, {now}, {deleted} where {when}
  on conflict (id) do update set version = max(version + 1, excluded.version), deleted = excluded.deleted;
"""
PUBLISH = """\
  insert into redrive_outbox_publish (projection, entity_type, entity_id, op, version, payload, max_attempts)
  select {projection}, {entity_type}, {id}, {op}, {version}, {document}, {attempts} where {when};
"""
TRIGGER = """\
drop trigger if exists {trigger};
create trigger {trigger} after {verb} on {table} begin
  /* redrive outbox {mark} */
{body}end;
"""
COUNTED = "(select v.version from {versions} v where v.id = {id})"
WIDE = "(select json_group_object(column1, column2) from (values {rows}))"
MOST_ARGUMENTS = 60  # of json_object, by two


def trigger_sql(one: TableMapping) -> str:
    """Returns the script that makes the triggers; run again, it replaces them."""
    moved = f"{_id(one, 'old')} is not {_id(one, 'new')}"
    bodies = {
        "insert": _event(one, "new", "'create'", "true"),
        "update": _event(one, "old", "'delete'", moved)
        + _event(one, "new", f"iif({moved}, 'create', 'upsert')", "true"),
        "delete": _event(one, "old", "'delete'", "true"),
    }
    triggers = [
        TRIGGER.format(
            trigger=name(own_name(one.table, "outbox", one.projection, verb)),
            verb=verb,
            table=name(one.table),
            mark=mark(one.facts()),
            body=body,
        )
        for verb, body in bodies.items()
    ]
    versions = "" if one.version else VERSIONS.format(versions=versions_of(one))
    return HEAD.format(table=remark(one.table), projection=one.projection) + versions + "".join(triggers) + "commit;\n"


def versions_of(one: TableMapping) -> str:
    """Returns the table in which triggers keep versions, where the projected table has none."""
    return name(own_name(one.table, "outbox", one.projection, "version"))


def document_of(one: TableMapping, row: str, columns: list[str]) -> str:
    """Returns the expression of a row's document. JSON has no bytes: those are written as hexadecimal text."""
    pairs = [(text(column), f"{row}.{name(column)}") for column in columns]
    values = [(key, f"case typeof({value}) when 'blob' then hex({value}) else {value} end") for key, value in pairs]
    if len(values) <= MOST_ARGUMENTS:
        return f"json_object({', '.join(f'{key}, {value}' for key, value in values)})"
    rows = ", ".join(f"({key}, {value})" for key, value in values)
    return WIDE.format(rows=rows)


def _event(one: TableMapping, row: str, op: str, when: str) -> str:
    key, deleted = _id(one, row), int(op == "'delete'")
    if one.version:
        counted = ""
        version = f"max(coalesce({row}.{name(one.version)}, 0), 0) + {deleted}"
    else:
        versions = versions_of(one)
        counted = NEXT.format(versions=versions, id=key, now=NOW, deleted=deleted, when=when)
        version = COUNTED.format(versions=versions, id=key)
    return counted + PUBLISH.format(
        projection=text(one.projection),
        entity_type=text(one.entity_type),
        id=key,
        op=op,
        version=version,
        document="null" if deleted else document_of(one, row, list(one.columns or ())),
        attempts=one.max_attempts,
        when=when,
    )


def _id(one: TableMapping, row: str) -> str:
    return f"cast({row}.{name(one.id)} as text)"
