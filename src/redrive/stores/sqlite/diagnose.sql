-- oldest: since when the first runnable task of each queue waits; one step in the index for each lane
with recursive lanes(first) as (
  select (select rowid from redrive_task where state = 'queued' order by queue, lane, priority, position limit 1)
  union all
  select (
    select t.rowid from redrive_task t, redrive_task o
    where o.rowid = l.first and t.state = 'queued' and (t.queue, t.lane) > (o.queue, o.lane)
    order by t.queue, t.lane, t.priority, t.position limit 1)
  from lanes l where l.first is not null
)
select t.queue, min(max(t.created_at, coalesce(t.run_at, 0), coalesce(t.last_attempt_at, 0), coalesce(t.last_replayed_at, 0)))
from lanes l join redrive_task t on t.rowid = l.first group by t.queue

-- expired: leases that ran out and that nobody has recovered
select count(*), min(x.lease_expires_at) from (
  select lease_expires_at from redrive_task where state = 'running' and lease_expires_at < ?
  order by lease_expires_at limit 1000) x

-- indexes: those there are
select name from sqlite_master where type = 'index' and name like 'redrive_%'
