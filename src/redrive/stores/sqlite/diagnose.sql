-- oldest: since when the first runnable task of each queue waits; one step in the index for each queue
with recursive queues(queue) as (
  select min(queue) from redrive_task where state = 'queued'
  union all
  select (select min(t.queue) from redrive_task t where t.state = 'queued' and t.queue > q.queue)
  from queues q where q.queue is not null
)
select q.queue, (
  select coalesce(t.run_at, t.last_attempt_at, t.created_at) from redrive_task t
  where t.state = 'queued' and t.queue = q.queue order by t.lane, t.priority, t.position limit 1)
from queues q where q.queue is not null

-- expired: leases that ran out and that nobody has recovered
select count(*), min(x.lease_expires_at) from (
  select lease_expires_at from redrive_task where state = 'running' and lease_expires_at < ?
  order by lease_expires_at limit 1000) x

-- indexes: those there are
select name from sqlite_master where type = 'index' and name like 'redrive_%'
