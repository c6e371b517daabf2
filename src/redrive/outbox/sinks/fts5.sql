-- Statements of the full-text sink. {docs} and {text} stand for the tables of an index: their names cannot be parameters.

-- settings: which index is the live one
create table if not exists redrive_search (name text primary key not null, live text not null) without rowid

-- docs: documents by key; a deleted one stays as its version, and since when (seconds)
create table if not exists {docs} (
  id          integer primary key,
  key         text not null unique,
  version     integer not null,
  deleted     integer not null default 0,
  routing     text,
  body        text not null default '', -- runs of CJK as pairs
  document    text,
  deleted_at  integer,
  base        integer not null default 0
)

-- deleted_index: by which old deletions are found
create index if not exists {docs}_deleted on {docs} (deleted_at) where deleted

-- prune: deletions from before so many seconds, so many at once
delete from {docs} where id in (
  select id from {docs} where deleted and deleted_at < cast(strftime('%s', 'now') as integer) - ? order by deleted_at limit ?)

-- text: the words of the documents; what they are made of is in {docs}
create virtual table if not exists {text} using fts5(body, content='{docs}', content_rowid='id', tokenize='unicode61 remove_diacritics 2')

-- live: the name of the live index
select live from redrive_search where name = ?

-- draw_identity: what the file is known by
insert into redrive_search (name, live) values (?, lower(hex(randomblob(8)))) on conflict (name) do nothing

-- set_live: makes an index the live one
insert into redrive_search (name, live) values (?, ?) on conflict (name) do update set live = excluded.live

-- known: what is there of these keys, by order
select key, id, base + version, deleted, body from {docs} where key in (select value from json_each(?))

-- add: new documents, and deletions of what never came
insert into {docs} (key, version, deleted, routing, body, document, base, deleted_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, case when ?3 then cast(strftime('%s', 'now') as integer) end)

-- change: newer versions
update {docs} set version = ?1, deleted = ?2, routing = ?3, body = ?4, document = ?5, base = ?6,
  deleted_at = case when ?2 then cast(strftime('%s', 'now') as integer) end
where id = ?7

-- forget_words: of the older version
insert into {text} ({text}, rowid, body) values ('delete', ?, ?)

-- learn_words: of documents by their keys, which have some
insert into {text} (rowid, body) select id, body from {docs} where key in (select value from json_each(?)) and not deleted

-- scan: documents in the order of their keys
select key, version, base from {docs} where key > ? and not deleted order by key limit ?

-- deleted: versions of deleted documents, in the order of their keys
select key, version, base from {docs} where key > ? and deleted order by key limit ?

-- deletions: those of these documents that were deleted
select key, version, base from {docs} where key in (select value from json_each(?)) and deleted

-- find: documents by their keys
select key, version, base from {docs} where key in (select value from json_each(?)) and not deleted

-- there: whether an index was made
select 1 from sqlite_master where type = 'table' and name = ?

-- search: the best ones first
select d.key, -bm25({text}) as score, d.document from {text} join {docs} d on d.id = {text}.rowid
where {text} match ? order by rank limit ?

-- drop_text: the words of an index
drop table if exists {text}

-- drop_docs: its documents
drop table if exists {docs}

-- get: the document of a key
select document from {docs} where key = ? and not deleted
