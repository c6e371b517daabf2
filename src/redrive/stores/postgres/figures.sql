-- figures: what the fleet is measured by, as one document: one statement, and no more rows than kinds, workers and schedules
with recursive lanes as (
  (select t.queue, t.lane from redrive.task t where t.state = 'queued' order by t.queue, t.lane limit 1)
  union all
  select n.queue, n.lane from lanes l cross join lateral (
    select t.queue, t.lane from redrive.task t where t.state = 'queued' and (t.queue, t.lane) > (l.queue, l.lane)
    order by t.queue, t.lane limit 1) n
), oldest as (
  select l.queue, f.kind, min(f.since) as since from lanes l cross join lateral (
    select t.kind, greatest(t.created_at, t.run_at, t.last_attempt_at, t.last_replayed_at) as since from redrive.task t
    where t.state = 'queued' and t.queue = l.queue and t.lane = l.lane order by t.priority, t.position limit 100) f
  group by l.queue, f.kind
), delta as materialized (
  select v.dimension, v.value, sum(d.n) as n
  from redrive.failed_delta d cross join lateral (values ('code', d.error_code), ('type', d.failure_type)) v(dimension, value)
  group by 1, 2
), named as (
  select m.dimension, m.value from unnest(array['code', 'type']) u(dimension) cross join lateral (
    select f.dimension, f.value from redrive.failed_sum f where f.dimension = u.dimension
    order by f.n desc, f.value limit $1 + (select count(*) from delta)) m
  union select d.dimension, d.value from delta d
), failed as (
  select n.dimension, n.value, (coalesce(m.n, 0) + coalesce(d.n, 0))::bigint as n
  from named n left join redrive.failed_sum m using (dimension, value) left join delta d using (dimension, value)
), named_total as (
  -- Names that lapsed, and of which nothing is there any more, are "other": what is looked at is bounded as names are.
  select case when x.own then c.queue else 'other' end as queue, case when x.own then c.kind else 'other' end as kind,
    sum(c.queued)::bigint as queued, sum(c.delayed)::bigint as delayed, sum(c.running)::bigint as running, sum(c.paused)::bigint as paused,
    sum(c.failed)::bigint as failed, sum(c.completed)::bigint as completed, sum(c.cancelled)::bigint as cancelled,
    sum(c.dead_letters)::bigint as dead_letters
  from redrive.v_counts c cross join lateral (
    select c.queued + c.delayed + c.running + c.paused + c.failed + c.dead_letters <> 0
      or exists (select 1 from redrive.used_name n where n.queue = c.queue and n.kind = c.kind)
      or exists (select 1 from redrive.known_name k where k.what = 'kind' and k.name = c.kind) as own) x
  group by 1, 2
), late as (
  select extract(epoch from clock_timestamp() - s.next_at)::float8 as seconds from redrive.schedule s
  where s.next_at < clock_timestamp() and not exists (
    select 1 from redrive.hold h where h.target = 'schedule' and h.name = s.name)
), unsealed as materialized (
  select a.at from redrive.audit a where a.id > coalesce((
    select case when jsonb_typeof(r.body -> 'last') = 'number'
      then greatest(least((r.body ->> 'last')::numeric, 9223372036854775807), 0)::bigint end
    from redrive.record r where r.collection = 'audit-seal' order by r.seq desc limit 1), 0)
  order by a.id limit $2
)
select json_build_object(
  'now', extract(epoch from clock_timestamp()),
  'totals', coalesce((
    select json_agg(json_build_array(c.queue, c.kind, c.queued, c.delayed, c.running, c.paused, c.failed, c.completed,
      c.cancelled, c.dead_letters) order by c.queue, c.kind) from named_total c), '[]'),
  'oldest', coalesce((
    select json_agg(json_build_array(o.queue, o.kind, extract(epoch from clock_timestamp() - o.since))) from oldest o), '[]'),
  'failed', coalesce((select json_agg(json_build_array(f.dimension, f.value, f.n)) from failed f), '[]'),
  'causes', (select count(*) from (select 1 from redrive.failed_sum m where m.dimension = 'cause' limit $2) x),
  'workers', coalesce((
    select json_agg(json_build_array(w.id, w.host, w.pid, w.queues, w.concurrency, w.running, w.version,
      extract(epoch from w.started_at), extract(epoch from w.seen_at), w.stopping, w.beat_ms,
      w.dead_at is not null)) from redrive.worker w), '[]'),
  'paused', coalesce((select json_agg(h.name) from redrive.hold h where h.target = 'queue'), '[]'),
  'paused_kinds', coalesce((select json_agg(h.name) from redrive.hold h where h.target = 'kind'), '[]'),
  'circuits', coalesce((
    select json_agg(json_build_array(c.name, c.kinds,
      case when c.open then extract(epoch from clock_timestamp() - c.since) end, c.opened) order by c.name)
    from redrive.circuit c), '[]'),
  'alerts', coalesce((
    select json_agg(json_build_array(r.id, r.version, r.body)) from redrive.record r
    where r.collection = 'alert' and coalesce(r.expires_at > clock_timestamp(), true)), '[]'),
  'records', coalesce((
    select json_agg(json_build_array(x.collection, x.state, x.n)) from (
      select r.collection, r.state, count(*) as n from redrive.record r
      where (r.collection = 'operation' and r.state in ('waiting', 'running', 'paused'))
        or (r.collection = 'approval' and r.state = 'pending')
      group by 1, 2) x), '[]'),
  'late', (select count(*) from late l where l.seconds > $3::float8),
  'lateness', (select max(l.seconds) from late l),
  'expired', (
    select count(*) from (
      select 1 from redrive.task t where t.state = 'running' and t.lease_expires_at < now()
      order by t.lease_expires_at limit $2) x),
  'unsealed', (select count(*) from unsealed),
  'unsealed_age', (select extract(epoch from clock_timestamp() - u.at) from unsealed u limit 1),
  'horizon', (
    select extract(epoch from clock_timestamp() - min(a.xact_start)) from pg_stat_activity a
    where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid())
)::text;

-- overdue: tasks that have waited too long, of some queues: among the first of each lane, one step in the index for each of these
select w.queue, x.n from unnest($1::text[], $2::float8[], $4::bigint[]) w(queue, age, most) cross join lateral (
  with recursive lanes as (
    (select t.lane from redrive.task t where t.state = 'queued' and t.queue = w.queue order by t.lane limit 1)
    union all
    select n.lane from lanes l cross join lateral (
      select t.lane from redrive.task t where t.state = 'queued' and t.queue = w.queue and t.lane > l.lane
      order by t.lane limit 1) n
  )
  select count(*) as n from (
    select 1 from lanes l cross join lateral (
      select t.kind, greatest(t.created_at, t.run_at, t.last_attempt_at, t.last_replayed_at) as since from redrive.task t
      where t.state = 'queued' and t.queue = w.queue and t.lane = l.lane order by t.priority, t.position limit w.most) f
    where f.since < clock_timestamp() - make_interval(secs => w.age) and f.kind <> all ($3::text[]) limit w.most) y
) x;
