-- tables: what the server has
create table if not exists indexes (name text primary key, types text not null, strict int not null, gc_deletes real not null);
create table if not exists identities (name text primary key, uuid text not null);
create table if not exists aliases (alias text not null, name text not null, primary key (alias, name));
-- what a write is compared with, deleted ones included
create table if not exists documents (
    name text not null, id text not null, version int not null, source text, key text, deleted_at real, fresh int not null,
    primary key (name, id)
) without rowid;
create index if not exists fresh_documents on documents (name) where fresh;
-- documents as they were at the last refresh, which searches find
create table if not exists found (
    name text not null, id text not null, version int not null, source text not null, key text, primary key (name, id)
) without rowid;
create index if not exists found_by_key on found (key, name);

-- put: a new version of a document, or its deletion
insert into documents (name, id, version, source, key, deleted_at, fresh) values (?, ?, ?, ?, ?, ?, 1)
on conflict (name, id) do update set version = excluded.version, source = excluded.source, key = excluded.key,
    deleted_at = excluded.deleted_at, fresh = 1;

-- refresh_new: searches find what was written
insert into found (name, id, version, source, key)
select name, id, version, source, key from documents where name = ? and fresh and deleted_at is null
on conflict (name, id) do update set version = excluded.version, source = excluded.source, key = excluded.key;

-- refresh_gone: searches no longer find what was deleted
delete from found where name = ?1 and id in (select id from documents where name = ?1 and fresh and deleted_at is not null);

-- search: documents in a range of keys, or of some keys, that have all of these words
select id, version, source, key from found
where name in (select value from json_each(?1)) and (?2 is null or key > ?2) and (?3 is null or key <= ?3)
    and (?6 is null or key in (select value from json_each(?6)))
    and not exists (select 1 from json_each(?4) word where instr(lower(found.source), word.value) = 0)
order by key limit ?5;
