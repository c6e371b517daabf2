"""The trigger of a table on PostgreSQL."""

from __future__ import annotations

from textwrap import indent

from redrive.outbox.triggers.table_mapping import TableMapping, dollar, mark, name, own_name, remark, text

HEAD = """\
-- Projects {table} to {projection}: each insert, update and delete becomes an event of the same transaction.
-- Run it as a role that owns the table and may call redrive.publish. Its function runs with the rights of that role, so
-- that whoever may write to the table needs no others.
begin;
"""
# Versions grow with each change, and with time: no id that comes back is taken for old, even if this table was lost.
VERSIONS = """\
create table if not exists {versions} (
  id       text primary key,
  version  bigint not null,
  deleted  boolean not null
);
"""
NEXT = """\
insert into {versions} as v (id, version, deleted)
values ({row}.{id}::text, (extract(epoch from clock_timestamp()) * 1000000)::bigint, {deleted})
on conflict (id) do update set version = greatest(v.version + 1, excluded.version), deleted = excluded.deleted
returning v.version into v_version;
"""
COLUMN = "v_version := greatest(coalesce({row}.{version}, 0), 0){more};\n"
SOME = (
    "(select jsonb_object_agg(e.key, e.value) from jsonb_each(to_jsonb({row})) e where e.key = any (array[{columns}]))"
)
BODY = """
declare
  v_version bigint;
  v_op text := case tg_op when 'INSERT' then 'create' else 'upsert' end;
begin
  if tg_op = 'DELETE' or (tg_op = 'UPDATE' and old.{id}::text is distinct from new.{id}::text) then
    v_op := 'create';
{old}\
    perform redrive.publish({projection}, {entity_type}, old.{id}::text, 'delete', v_version{attempts});
    if tg_op = 'DELETE' then return null; end if;
  end if;
{new}\
  perform redrive.publish({projection}, {entity_type}, new.{id}::text, v_op, v_version,
    {document}{attempts});
  return null;
end """
SCRIPT = """\
create or replace function {function}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as {tag}{body}{tag};
-- Else anybody could attach it to a table of their own, and publish what that says.
revoke all on function {function}() from public;
drop trigger if exists {trigger} on {table};
create trigger {trigger} after insert or update or delete on {table}
  for each row execute function {function}();
comment on trigger {trigger} on {table} is {mark};
commit;
"""


def trigger_sql(one: TableMapping) -> str:
    """Returns the script that makes the trigger; run again, it replaces it."""
    table = f"{name(one.schema)}.{name(one.table)}"
    trigger = own_name(one.table, "outbox", one.projection)
    body = BODY.format(
        id=name(one.id),
        old=_version(one, "old", "    ", deleted=True),
        new=_version(one, "new", "  ", deleted=False),
        projection=text(one.projection),
        entity_type=text(one.entity_type),
        document=document_of(one, "new"),
        attempts=f", max_attempts => {one.max_attempts}",
    )
    head = HEAD.format(table=remark(f"{one.schema}.{one.table}"), projection=one.projection)
    return (
        head
        + ("" if one.version else VERSIONS.format(versions=versions_of(one)))
        + SCRIPT.format(
            function=f"{name(one.schema)}.{name(trigger)}",
            trigger=name(trigger),
            table=table,
            tag=dollar(body),
            body=body,
            mark=text(f"redrive outbox {mark(one.facts())}"),
        )
    )


def versions_of(one: TableMapping) -> str:
    """Returns the table in which a trigger keeps versions, where the projected table has none."""
    return f"{name(one.schema)}.{name(own_name(one.table, 'outbox', one.projection, 'version'))}"


def document_of(one: TableMapping, row: str) -> str:
    """Returns the expression of a row's document."""
    if one.columns is None:
        return f"to_jsonb({row})"
    columns = ", ".join(text(column) for column in one.columns)
    return SOME.format(row=row, columns=columns)


def _version(one: TableMapping, row: str, margin: str, *, deleted: bool) -> str:
    """Returns the statement that says which version it is. What is indented is the form: a name may have lines, too."""
    if one.version:
        return indent(COLUMN, margin).format(row=row, version=name(one.version), more=" + 1" if deleted else "")
    return indent(NEXT, margin).format(
        versions=versions_of(one), row=row, id=name(one.id), deleted=str(deleted).lower()
    )
