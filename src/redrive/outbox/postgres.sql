-- bury: deletes that the sink will forget; the newest version of each stays
insert into redrive.outbox_tombstone as t (projection, key_digest, version)
select x.projection, x.key, max(x.version) from jsonb_to_recordset($1) x(projection text, key text, version bigint)
group by x.projection, x.key order by x.projection, x.key
on conflict (projection, key_digest)
do update set version = greatest(t.version, excluded.version), deleted_at = excluded.deleted_at

-- buried: the versions of those of these documents that were deleted
select t.key_digest, t.version from redrive.outbox_tombstone t
where t.projection = $1 and t.key_digest = any (array(select jsonb_array_elements_text($2::jsonb)))

-- prune_tombstones: those that were deleted before this time, so many at once
delete from redrive.outbox_tombstone where (projection, key_digest) in (
  select projection, key_digest from redrive.outbox_tombstone where deleted_at < $1 order by deleted_at limit $2)

-- prune_lives: of keys that were deleted before this time, or live in their first life again; so many at once
delete from redrive.outbox_life where (projection, key) in (
  select projection, key from redrive.outbox_life where (deleted is not null or base = 0) and changed_at < $1 order by changed_at limit $2)

-- lives: what is known of the lives of these keys
select l.key, l.base, l.deleted, l.changes from redrive.outbox_life l
where l.projection = $1 and l.key = any (array(select jsonb_array_elements_text($2::jsonb)))

-- begin_lives: of keys that were deleted, and are there again; only where nothing was published since somebody looked (-1: nothing ever)
insert into redrive.outbox_life as l (projection, key, base, changes)
select x.projection, x.key, x.base, x.changes + 1 from jsonb_to_recordset($1) x(projection text, key text, base bigint, changes bigint)
order by x.projection, x.key
on conflict (projection, key) do update set base = excluded.base, deleted = null, changes = l.changes + 1, changed_at = clock_timestamp()
where l.changes = excluded.changes - 1

-- personal: the lives of a key that is a scope's; tombstones hold digests, and say nothing about anybody
select count(*) as n from redrive.outbox_life l where l.key = $1::jsonb ->> 'scope'

-- erase: the same, so many at once. Indexes stay as new as they were, so a life goes on under a digest of its key: in it what is
-- published later counts from there (outbox/lives.py). Erased again, it counts from what has come since
with gone as (
  delete from redrive.outbox_life l where (l.projection, l.key) in (
    select x.projection, x.key from redrive.outbox_life x where x.key = $1::jsonb ->> 'scope' limit ($1::jsonb ->> 'limit')::bigint)
  returning l.projection, l.base, l.deleted, l.changes)
insert into redrive.outbox_life as e (projection, key, base, deleted, changes)
select g.projection, 'erased ' || ($1::jsonb ->> 'digest'), g.base, g.deleted, g.changes from gone g
on conflict (projection, key) do update set changes = e.changes + excluded.changes + 1, changed_at = clock_timestamp(),
  base = least(e.base::numeric + excluded.base + case when excluded.deleted is null then coalesce(e.deleted + 1, 0) else 0 end,
    4611686018427387904),
  deleted = case when excluded.deleted is not null then greatest(excluded.deleted, e.deleted - excluded.base) end

-- event_counts: each projection's events by status; the age of the oldest that is not done is of the first 1,000 of each state
with running as materialized (
  select t.queue, t.created_at, t.lease_expires_at < clock_timestamp()
    or t.last_attempt_at < clock_timestamp() - $1::double precision * interval '1 second' as stuck
  from redrive.task t where t.state = 'running' and t.lease_expires_at > '-infinity' and t.queue like 'outbox:%'
)
select substr(c.kind, 8) as projection, c.queued + c.delayed + c.paused as pending, c.running as processing, c.failed,
  c.completed as done, c.delayed as retries, coalesce(r.inflight, 0) as inflight, coalesce(r.stuck, 0) as stuck,
  extract(epoch from clock_timestamp() - least(r.oldest, q.oldest, d.oldest))::double precision as oldest_age
from redrive.v_counts c
left join lateral (
  select count(*) filter (where not x.stuck) as inflight, count(*) filter (where x.stuck) as stuck, min(x.created_at) as oldest
  from running x where x.queue = c.queue) r on true
left join lateral (
  select min(x.created_at) as oldest from (
    select t.created_at from redrive.task t where t.state = 'queued' and t.queue = c.queue
    order by t.lane, t.priority, t.position limit 1000) x) q on true
left join lateral (
  select min(x.created_at) as oldest from (
    select t.created_at from redrive.task t where t.state = 'delayed' and t.queue = c.queue
    order by t.next_attempt_at limit 1000) x) d on true
where c.kind like 'OUTBOX:%' order by 1

-- failed_by_reason: how many events of a queue are failed, by reason; totals, whatever their number
select c.error_reason as reason, sum(c.n)::bigint as events from redrive.v_failed_counts c
where c.queue = $1 group by 1 having sum(c.n) > 0 order by 2 desc, 1 limit $2

-- retried_by_reason: why events of a queue wait for another attempt; of the first 1,000 of them
select coalesce(x.error_reason, '') as reason, count(*) as events from (
  select t.error_reason from redrive.task t where t.state = 'delayed' and t.queue = $1 order by t.next_attempt_at limit 1000) x
group by 1 order by 2 desc, 1 limit $2

-- longest_events: events of a queue that are not done, some of each state: those that wait, or failed, first
with chosen as (
  (select t.id, 'pending' as status, t.created_at from redrive.task t where t.state = 'queued' and t.queue = $1
    order by t.lane, t.priority, t.position limit $2)
  union all
  (select x.id, 'pending', x.created_at from (
    select t.id, t.created_at from redrive.task t where t.state = 'delayed' and t.queue = $1 order by t.next_attempt_at limit 1000) x
    order by x.created_at limit $2)
  union all
  (select t.id, 'processing', t.created_at from redrive.task t
    where t.state = 'running' and t.lease_expires_at > '-infinity' and t.queue = $1 order by t.created_at limit $2)
  union all
  (select t.id, 'failed', t.created_at from redrive.task t where t.state = 'failed' and t.queue = $1 order by t.failed_seq limit $2)
)
select t.id, c.status, t.scope as entity, t.attempt_count as attempts, t.max_attempts, t.created_at, t.failed_at,
  case t.state when 'delayed' then t.next_attempt_at end as next_retry_at,
  case t.state when 'running' then t.lease_expires_at end as lease_until, t.error_reason, t.error_message as error,
  t.replay_count, t.payload ->> 'op' as op,
  case when t.payload ->> 'version' ~ '^[0-9]{1,19}$' then
    case when (t.payload ->> 'version')::numeric <= 9223372036854775807 then (t.payload ->> 'version')::bigint end end as version
from chosen c join redrive.task t on t.id = c.id order by t.created_at, t.id

-- claimed_until: how many events of a queue somebody works on since this moment or longer, in microseconds
select count(*) as n from redrive.task t where t.state = 'running' and t.lease_expires_at > '-infinity' and t.queue = $1
  and t.last_attempt_at <= to_timestamp($2::double precision / 1000000)

-- under_way: those of these entities that have events which are not in the sink yet
select distinct t.scope from redrive.task t where t.queue = $1 and t.state in ('queued', 'delayed', 'running', 'paused')
  and t.scope = any (array(select jsonb_array_elements_text($2::jsonb)))

-- table_shape: tables of this name, with or without a schema, and what a trigger has to know of them
select n.nspname::text as "schema", c.relname::text as "table", case when c.relkind in ('r', 'p') then 'table' else 'view' end as kind,
  c.relkind = 'p' or c.relispartition as partitioned,
  (select json_agg(json_build_array(a.attname, format_type(a.atttypid, null)) order by a.attnum) from pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)::text as columns,
  (select json_agg(a.attname order by k.n) from pg_index i cross join unnest(i.indkey::smallint[]) with ordinality k(attnum, n)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
    where i.indrelid = c.oid and i.indisprimary and k.n <= i.indnkeyatts)::text as key,
  (select json_agg(a.attname) from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
    where i.indrelid = c.oid and i.indisunique and i.indnkeyatts = 1 and i.indpred is null and i.indexprs is null)::text as uniques
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
  and (c.relname = $1 or n.nspname || '.' || c.relname = $1)

-- trigger_marks: what redrive's triggers say about themselves
select obj_description(t.oid, 'pg_trigger') as mark from pg_trigger t
where not t.tgisinternal and t.tgparentid = 0 and obj_description(t.oid, 'pg_trigger') like 'redrive outbox {%'
