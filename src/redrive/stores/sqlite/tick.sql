-- beat: a write a few times a minute is enough to be seen alive
update worker set seen_at = ?, running = ?, stopping = ? where id = ? and (seen_at < ? or stopping <> ?)

-- join: a worker seen for the first time
insert into worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing

-- duties_new: duties nobody had yet
insert into duty (name, next_at) select value, ? from json_each(?) where true on conflict (name) do nothing

-- duties: duties whose time has come go to this worker
update duty set next_at = ? + v.every
from (select json_extract(j.value, '$[0]') as name, json_extract(j.value, '$[1]') as every from json_each(?) j) v
where duty.name = v.name and duty.next_at <= ?
returning name

-- any_expired: is there a lease that ran out
select 1 from task where state = 'running' and lease_expires_at <= ? limit 1

-- any_schedule: is a schedule due
select 1 from schedule where next_at <= ? limit 1

-- due: tasks whose time has come
select rowid, queue, kind from task where state = 'delayed' and next_attempt_at <= ? order by next_attempt_at limit ?

-- promote: they join the tail in the order they were due
update task set state = 'queued', next_attempt_at = null, position = ? + v.key,
  lane = coalesce((select k.kind from kind k where k.kind = task.kind), '')
from (select j.key as key, j.value as id from json_each(?) j) v where task.rowid = v.id

-- cancels: a worker's tasks that somebody wants cancelled
select id from task where worker_id = ? and cancel_requested_at is not null and state = 'running'

-- next_due: when something is due again
select min(at) from (
  select min(next_attempt_at) as at from task where state = 'delayed'
  union all select min(next_at) from schedule where next_at > ?
  union all select min(next_at) from kind where rate_ms is not null and next_at > ?)

-- expired: leases that ran out
select id, lease_token, attempt_count, max_attempts, worker_id from task
where state = 'running' and lease_expires_at <= ? order by lease_expires_at limit ?

-- prune_history: finished tasks past their keep
delete from history where rowid in (
  select h.rowid from history h where h.finished_at < ? order by h.finished_at limit ?)

-- prune_keys: a key is kept as long as its task is in the live table, however old
delete from idempotency_key where key in (
  select k.key from idempotency_key k
  where k.created_at < ? and not exists (select 1 from task t where t.id = k.task_id) order by k.created_at limit ?)

-- prune_attempts: attempts of tasks that are no longer live
delete from attempt where seq in (
  select a.seq from attempt a
  where a.at < ? and not exists (select 1 from task t where t.id = a.task_id) order by a.at limit ?)

-- prune_workers: workers not seen for a day
delete from worker where seen_at < ?
