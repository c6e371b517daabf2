-- Statements of the full-text sink on PostgreSQL. {live} is the view that people search; {table} one of the tables behind it, or that view.

-- lock: one at a time makes, switches and drops tables of a sink
select pg_advisory_xact_lock(hashtextextended('redrive outbox ' || $1, 0))

-- patience: whoever waits for a lock keeps everybody behind it waiting, also who only searches; so not for long
set local lock_timeout = '1s'

-- live: which index the view shows, if it is there
select obj_description(to_regclass($1), 'pg_class')

-- identity: what a table is known by, for as long as it is the same
select to_regclass($1)::oid::bigint

-- table: documents by key; a deleted one stays as its version, until it was written long ago
create table if not exists {table} (
  key         text collate "C" primary key,
  version     bigint not null,
  deleted     boolean not null,
  routing     text,
  document    jsonb,
  words       tsvector,
  written_at  timestamptz not null default now(),
  base        bigint not null default 0
)

-- deleted_index: by which old deletions are found
create index if not exists {index} on {table} (written_at) where deleted

-- words: what searches read
create index if not exists {index} on {table} using gin (words)

-- view: makes an index the live one
create or replace view {live} as select key, version, deleted, routing, document, words, written_at, base from {table}

-- mark: says which it is
comment on view {live} is {mark}

-- drop: an index that is not live
drop table if exists {table}

-- write: newer versions; returns the keys of those that were
insert into {table} as d (key, version, deleted, routing, document, words, base)
select x.key, x.version, x.deleted, x.routing, x.document,
  case when not x.deleted then jsonb_to_tsvector($2::text::regconfig, coalesce(x.found_by, x.document), '["string", "numeric"]') end,
  x.base
from jsonb_to_recordset($1::text::jsonb)
  x(key text, version bigint, base bigint, deleted boolean, routing text, document jsonb, found_by jsonb)
on conflict (key) do update set version = excluded.version, deleted = excluded.deleted, routing = excluded.routing,
  document = excluded.document, words = excluded.words, written_at = now(), base = excluded.base
where d.base + d.version < excluded.base + excluded.version
returning key

-- scan: documents in the order of their keys
select key, version, base from {table} where key > $1 and not deleted order by key limit $2

-- deleted: versions of deleted documents, in the order of their keys
select key, version, base from {table} where key > $1 and deleted order by key limit $2

-- deletions: those of these documents that were deleted
select key, version, base from {table} where key = any($1::text[]) and deleted

-- prune: forgets deletions from before so many seconds, so many at once
delete from {table} where deleted and written_at < now() - $1 * interval '1 second' and key in (
  select key from {table} where deleted and written_at < now() - $1 * interval '1 second' order by written_at limit $2)

-- find: documents by their keys
select key, version, base from {table} where key = any($1::text[]) and not deleted

-- search: documents that have all of these words and runs of characters, the best ones first. A tsvector counts positions up to 16,383,
-- and 256 for a word, so where a document has all pairs of a run but not as a phrase, its text is looked at
with q as materialized (
  select plainto_tsquery($2::text::regconfig, $1) && to_tsquery($2::text::regconfig, $4) as pairs,
    to_tsquery($2::text::regconfig, $5) as phrases)
select key, ts_rank(words, q.pairs) as score, document::text as document
from {table}, q
where words @@ q.pairs and not deleted
  and ($5 = '' or words @@ q.phrases or not exists (select from unnest($6::text[]) run where strpos(document::text, run) = 0))
order by score desc, key limit $3

-- get: one document
select document::text from {table} where key = $1 and not deleted
