-- bury: deletes that the sink will forget; the newest version of each stays
insert into redrive_outbox_tombstone (projection, key_digest, version)
select v.value ->> 'projection', v.value ->> 'key', max(v.value ->> 'version') from json_each(?) v
where true group by 1, 2
on conflict (projection, key_digest)
do update set version = max(version, excluded.version), deleted_at = excluded.deleted_at

-- buried: the versions of those of these documents that were deleted
select key_digest, version from redrive_outbox_tombstone
where projection = ?1 and key_digest in (select value from json_each(?2))

-- prune_tombstones: those that were deleted before this time, so many at once
delete from redrive_outbox_tombstone where (projection, key_digest) in (
  select projection, key_digest from redrive_outbox_tombstone where deleted_at < ?1 order by deleted_at limit ?2)

-- prune_lives: of keys that were deleted before this time, or live in their first life again; so many at once
delete from redrive_outbox_life where (projection, key) in (
  select projection, key from redrive_outbox_life where (deleted is not null or base = 0) and changed_at < ?1 order by changed_at limit ?2)

-- lives: what is known of the lives of these keys
select l.key, l.base, l.deleted, l.changes from redrive_outbox_life l
where l.projection = ?1 and l.key in (select value from json_each(?2))

-- begin_lives: of keys that were deleted, and are there again; only where nothing was published since somebody looked (-1: nothing ever)
insert into redrive_outbox_life (projection, key, base, changes)
select v.value ->> 'projection', v.value ->> 'key', v.value ->> 'base', (v.value ->> 'changes') + 1 from json_each(?) v where true
on conflict (projection, key) do update set base = excluded.base, deleted = null, changes = changes + 1, changed_at = unixepoch() * 1000000
where changes = excluded.changes - 1

-- personal: the lives of a key that is a scope's; tombstones hold digests, and say nothing about anybody
select count(*) as n from redrive_outbox_life l where l.key = ?1 ->> 'scope'

-- erase: the same, so many at once. Indexes stay as new as they were, so a life goes on under a digest of its key: in it what is
-- published later counts from there (outbox/lives.py). Erased again, it counts from what has come since
update or replace redrive_outbox_life as l set key = 'erased ' || (?1 ->> 'digest'), changed_at = unixepoch() * 1000000,
  (base, deleted, changes) = (
    select min(l.base + coalesce(e.base + case when l.deleted is null then coalesce(e.deleted + 1, 0) else 0 end, 0), 4611686018427387904),
      case when l.deleted is not null then max(l.deleted, coalesce(e.deleted - l.base, 0)) end,
      l.changes + coalesce(e.changes, 0) + 1
    from (select 1) left join redrive_outbox_life e on e.projection = l.projection and e.key = 'erased ' || (?1 ->> 'digest'))
where (l.projection, l.key) in (
  select x.projection, x.key from redrive_outbox_life x where x.key = ?1 ->> 'scope' limit (?1 ->> 'limit'))

-- event_counts: each projection's events by status; the age of the oldest that is not done is of the first 1,000 of each state
with moment(now) as (select cast((julianday('now') - 2440587.5) * 86400000000 as integer)
), running as materialized (
  select t.queue, t.created_at, t.lease_expires_at < (select now from moment)
    or t.last_attempt_at < (select now from moment) - ?1 * 1000000 as stuck
  from redrive_task t where t.state = 'running' and t.lease_expires_at > 0 and t.queue like 'outbox:%'
), delayed as materialized (
  select t.queue, t.created_at from redrive_task t where t.state = 'delayed' order by t.next_attempt_at limit 1000
), counted as (
  select c.*,
    (select min(x.created_at) from running x where x.queue = c.queue) as r,
    (select min(x.created_at) from delayed x where x.queue = c.queue) as d,
    (select min(x.created_at) from (
      select t.created_at from redrive_task t where t.state = 'queued' and t.queue = c.queue
      order by t.lane, t.priority, t.position limit 1000) x) as q
  from redrive_total c where c.kind like 'OUTBOX:%'
)
select substr(c.kind, 8) as projection, c.queued + c.delayed + c.paused as pending, c.running as processing, c.failed,
  c.completed as done, c.delayed as retries,
  (select count(*) from running x where x.queue = c.queue and not x.stuck) as inflight,
  (select count(*) from running x where x.queue = c.queue and x.stuck) as stuck,
  case when coalesce(c.r, c.d, c.q) is not null
    then (m.now - min(coalesce(c.r, m.now), coalesce(c.d, m.now), coalesce(c.q, m.now))) / 1000000.0 end as oldest_age
from counted c, moment m order by 1

-- failed_by_reason: how many events of a queue are failed, by reason; totals, whatever their number
select t.error_reason as reason, sum(t.n) as events from redrive_failed_total t
where t.queue = ?1 group by 1 having sum(t.n) > 0 order by 2 desc, 1 limit ?2

-- retried_by_reason: why events of a queue wait for another attempt; of the first 1,000 delayed tasks
select coalesce(x.error_reason, '') as reason, count(*) as events from (
  select t.queue, t.error_reason from redrive_task t where t.state = 'delayed' order by t.next_attempt_at limit 1000) x
where x.queue = ?1 group by 1 order by 2 desc, 1 limit ?2

-- longest_events: events of a queue that are not done, some of each state: those that wait, or failed, first
with delayed as materialized (
  select t.rowid as r, t.queue, t.created_at from redrive_task t where t.state = 'delayed' order by t.next_attempt_at limit 1000
), chosen(r, status) as (
  select * from (select t.rowid, 'pending' from redrive_task t where t.state = 'queued' and t.queue = ?1
    order by t.lane, t.priority, t.position limit ?2)
  union all
  select * from (select d.r, 'pending' from delayed d where d.queue = ?1 order by d.created_at limit ?2)
  union all
  select * from (select t.rowid, 'processing' from redrive_task t
    where t.state = 'running' and t.lease_expires_at > 0 and t.queue = ?1 order by t.created_at limit ?2)
  union all
  select * from (select t.rowid, 'failed' from redrive_task t where t.state = 'failed' and t.queue = ?1
    order by t.failed_seq limit ?2)
)
select t.id, c.status, t.scope as entity, t.attempt_count as attempts, t.max_attempts, t.created_at, t.failed_at,
  case t.state when 'delayed' then t.next_attempt_at end as next_retry_at,
  case t.state when 'running' then t.lease_expires_at end as lease_until, t.error_reason, t.error_message as error,
  t.replay_count, case when json_valid(t.payload) then json_extract(t.payload, '$.op') end as op,
  case when json_valid(t.payload) then
    case json_type(t.payload, '$.version') when 'integer' then json_extract(t.payload, '$.version') end end as version
from chosen c join redrive_task t on t.rowid = c.r order by t.created_at, t.id

-- claimed_until: how many events of a queue somebody works on since this moment or longer, in microseconds
select count(*) as n from redrive_task t where t.state = 'running' and t.lease_expires_at > 0 and t.queue = ?1
  and t.last_attempt_at <= ?2

-- under_way: those of these entities that have events which are not in the sink yet
select distinct t.scope from redrive_task t where t.queue = ?1 and t.state in ('queued', 'delayed', 'running', 'paused')
  and t.scope in (select value from json_each(?2))

-- table_shape: tables of this name, with what a trigger has to know of them
select '' as "schema", m.name as "table", m.type as kind, 0 as partitioned,
  (select json_group_array(json_array(x.name, lower(x.type))) from pragma_table_xinfo(m.name) x where x.hidden <> 1) as columns,
  (select json_group_array(x.name) from (select x.name from pragma_table_xinfo(m.name) x where x.pk > 0 order by x.pk) x) as key,
  (select json_group_array(i.name) from pragma_index_list(m.name) l, pragma_index_info(l.name) i where l."unique" and not l.partial
    and (select count(*) from pragma_index_info(l.name)) = 1) as uniques
from sqlite_master m where m.type in ('table', 'view') and m.name = ?1 collate nocase

-- trigger_marks: what redrive's triggers say about themselves
select m.sql as mark from sqlite_master m where m.type = 'trigger' and instr(m.sql, '/* redrive outbox {') > 0 and m.name like '%\_insert' escape '\'
