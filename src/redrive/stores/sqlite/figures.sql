-- figures: what the fleet is measured by, as one document: one statement, and no more rows than kinds, workers and schedules
with recursive lanes(first) as (
  select (select rowid from redrive_task where state = 'queued' order by queue, lane, priority, position limit 1)
  union all
  -- Two steps: for a pair, (queue, lane) > (…), SQLite would walk all of the queue.
  select coalesce((
    select t.rowid from redrive_task t, redrive_task o
    where o.rowid = l.first and t.state = 'queued' and t.queue = o.queue and t.lane > o.lane
    order by t.lane, t.priority, t.position limit 1), (
    select t.rowid from redrive_task t, redrive_task o
    where o.rowid = l.first and t.state = 'queued' and t.queue > o.queue
    order by t.queue, t.lane, t.priority, t.position limit 1))
  from lanes l where l.first is not null
), heads(at, n) as (
  select first, 1 from lanes where first is not null
  union all
  select (
    select t.rowid from redrive_task t, redrive_task o
    where o.rowid = h.at and t.state = 'queued' and t.queue = o.queue and t.lane = o.lane
      and (t.priority, t.position) > (o.priority, o.position)
    order by t.priority, t.position limit 1), h.n + 1
  from heads h where h.at is not null and h.n < 100
), oldest as (
  select t.queue, t.kind,
    min(max(t.created_at, coalesce(t.run_at, 0), coalesce(t.last_attempt_at, 0), coalesce(t.last_replayed_at, 0))) as since
  from heads h join redrive_task t on t.rowid = h.at group by t.queue, t.kind
), named_total as (
  -- Names that lapsed, and of which nothing is there any more, are "other": what is looked at is bounded as names are.
  select iif(x.own, x.queue, 'other') as queue, iif(x.own, x.kind, 'other') as kind, sum(x.queued) as queued, sum(x.delayed) as delayed,
    sum(x.running) as running, sum(x.paused) as paused, sum(x.failed) as failed, sum(x.completed) as completed,
    sum(x.cancelled) as cancelled, sum(x.dead_letters) as dead_letters
  from (
    select c.*, c.queued + c.delayed + c.running + c.paused + c.failed + c.dead_letters <> 0
      or exists (select 1 from redrive_used_name n where n.queue = c.queue and n.kind = c.kind)
      or exists (select 1 from redrive_known_name k where k.what = 'kind' and k.name = c.kind) as own
    from redrive_total c) x
  group by 1, 2
), late as (
  select (?1 - s.next_at) / 1000000.0 as seconds from redrive_schedule s
  where s.next_at < ?1 and not exists (select 1 from redrive_hold h where h.target = 'schedule' and h.name = s.name)
), unsealed as materialized (
  select a.at from redrive_audit a where a.id > coalesce((
    select case when json_valid(r.body) and json_type(r.body, '$.last') = 'integer' then json_extract(r.body, '$.last') end
    from redrive_record r where r.collection = 'audit-seal' order by r.seq desc limit 1), 0)
  order by a.id limit ?3
)
select json_object(
  'now', ?1 / 1000000.0,
  'totals', (
    select json_group_array(json_array(c.queue, c.kind, c.queued, c.delayed, c.running, c.paused, c.failed, c.completed,
      c.cancelled, c.dead_letters)) from named_total c),
  'oldest', (select json_group_array(json_array(o.queue, o.kind, (?1 - o.since) / 1000000.0)) from oldest o),
  'failed', (
    select json_group_array(json_array(f.dimension, f.value, f.n)) from (
      select * from (
        select * from redrive_failed_sum where dimension = 'code' order by n desc, value limit ?2)
      union all
      select * from (
        select * from redrive_failed_sum where dimension = 'type' order by n desc, value limit ?2)) f),
  'causes', (select count(*) from (select 1 from redrive_failed_sum m where m.dimension = 'cause' and m.n > 0 limit ?3)),
  'workers', (
    select json_group_array(json_array(w.id, w.host, w.pid, json(w.queues), w.concurrency, w.running, w.version,
      w.started_at / 1000000.0, w.seen_at / 1000000.0, w.stopping, w.beat_ms,
      w.dead_at is not null)) from redrive_worker w),
  'paused', (select json_group_array(h.name) from redrive_hold h where h.target = 'queue'),
  'paused_kinds', (select json_group_array(h.name) from redrive_hold h where h.target = 'kind'),
  'circuits', (
    select json_group_array(json_array(c.name, json(c.kinds), case when c.open then (?1 - c.since) / 1000000.0 end, c.opened))
    from redrive_circuit c),
  'alerts', (
    select json_group_array(json_array(r.id, r.version, case when json_valid(r.body) then json(r.body) end))
    from redrive_record r where r.collection = 'alert' and coalesce(r.expires_at > ?1, true)),
  'records', (
    select json_group_array(json_array(x.collection, x.state, x.n)) from (
      select r.collection, r.state, count(*) as n from redrive_record r
      where (r.collection = 'operation' and r.state in ('waiting', 'running', 'paused'))
        or (r.collection = 'approval' and r.state = 'pending')
      group by 1, 2) x),
  'late', (select count(*) from late l where l.seconds > ?4),
  'lateness', (select max(l.seconds) from late l),
  'expired', (
    select count(*) from (
      select 1 from redrive_task t where t.state = 'running' and t.lease_expires_at < ?1
      order by t.lease_expires_at limit ?3)),
  'unsealed', (select count(*) from unsealed),
  'unsealed_age', (select (?1 - u.at) / 1000000.0 from unsealed u limit 1),
  'horizon', null
)

-- overdue: tasks that have waited too long, of some queues: among the first of each lane, one step in the index for each of these
with recursive wanted(queue, age) as (
  select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(?2)
), lanes(queue, lane, age) as (
  select w.queue, (
    select t.lane from redrive_task t where t.state = 'queued' and t.queue = w.queue order by t.lane limit 1), w.age
  from wanted w
  union all
  select l.queue, (
    select t.lane from redrive_task t where t.state = 'queued' and t.queue = l.queue and t.lane > l.lane
    order by t.lane limit 1), l.age
  from lanes l where l.lane is not null
)
select l.queue, min(sum((
  select count(*) from (
    select t.kind,
      max(t.created_at, coalesce(t.run_at, 0), coalesce(t.last_attempt_at, 0), coalesce(t.last_replayed_at, 0)) as since
    from redrive_task t where t.state = 'queued' and t.queue = l.queue and t.lane = l.lane
    order by t.priority, t.position limit ?4) f
  where f.since < ?1 - l.age * 1000000 and f.kind not in (select value from json_each(?3)))), ?4) as n
from lanes l where l.lane is not null group by l.queue having n > 0
