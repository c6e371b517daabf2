-- oldest: since when the first runnable task of each queue waits; one step in the index for each lane
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
)
select t.queue, min(max(t.created_at, coalesce(t.run_at, 0), coalesce(t.last_attempt_at, 0), coalesce(t.last_replayed_at, 0)))
from lanes l join redrive_task t on t.rowid = l.first group by t.queue

-- expired: leases that ran out and that nobody has recovered, by feature
select x.feature, count(*), min(x.lease_expires_at) from (
  select feature, lease_expires_at from redrive_task where state = 'running' and lease_expires_at < ?
  order by lease_expires_at limit 1000) x group by x.feature

-- unknown: tasks of features for which no worker has the duty of recovering; one step in the index for each feature
with recursive names(feature) as (
  select (select min(feature) from redrive_task where feature is not null and state <> 'failed')
  union all
  select (select min(t.feature) from redrive_task t where t.feature > f.feature and t.feature is not null and t.state <> 'failed')
  from names f where f.feature is not null
)
select f.feature, (
  select count(*) from (
    select 1 from redrive_task t
    where t.feature = f.feature and t.feature is not null and t.state <> 'failed' limit 1000))
from names f where f.feature is not null
  and not exists (select 1 from redrive_duty d where d.name = 'recover:' || f.feature and d.next_at > ? - 60000000)

-- faults: joins whose end could not be followed
select id, fault from redrive_join where fault is not null order by id limit 20

-- waiting: open joins that are a week old
select count(*) from (select 1 from redrive_join where ended_at is null and is_open and created_at < ? - 7 * 86400000000 limit 1000) x

-- indexes: those there are
select name from sqlite_master where type = 'index' and name like 'redrive_%'
