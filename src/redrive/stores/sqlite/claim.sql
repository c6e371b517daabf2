-- holds: what is paused
select target, name from redrive_hold

-- kinds: kinds with a lane of their own
select kind, concurrency, rate_ms, running, next_at from redrive_kind

-- open: claim from one queue where nothing is limited, held or set aside
update redrive_task set state = 'running', attempt_count = attempt_count + 1, lease_token = ?, lease_expires_at = ?,
  last_attempt_at = ?, worker_id = ?
where rowid in (
  select c.rowid from redrive_task c where c.state = 'queued' and c.queue = ? and c.lane = ''
  order by c.priority, c.position limit ?)
returning id, kind, queue, priority, position, payload, attempt_count, max_attempts, created_at, task_group, scope,
  trace_id, idempotency_key, timeout_ms, memo, replay_count

-- picked: claim these rows
update redrive_task set state = 'running', attempt_count = attempt_count + 1, lease_token = ?, lease_expires_at = ?,
  last_attempt_at = ?, worker_id = ?
where rowid in (select value from json_each(?))
returning id, kind, queue, priority, position, payload, attempt_count, max_attempts, created_at, task_group, scope,
  trace_id, idempotency_key, timeout_ms, memo, replay_count

-- waiting: lanes of a queue with something ready
select v.value from json_each(?) v
where exists (select 1 from redrive_task c where c.state = 'queued' and c.queue = ? and c.lane = v.value)

-- ready: one lane of a queue, in order; read only as far as needed
select c.priority, c.position, c.rowid, c.kind, c.task_group, c.lane from redrive_task c
where c.state = 'queued' and c.queue = ? and c.lane = ? order by c.priority, c.position limit ?

-- add_lanes: kinds met for the first time that are not everybody's
insert into redrive_kind (kind) select value from json_each(?) where true on conflict (kind) do nothing

-- set_aside: rows that belong in a lane of their own
update redrive_task set lane = kind where rowid in (select value from json_each(?))

-- hold_back: rows of held groups
update redrive_task set state = 'paused', paused_by = 'group:' || task_group where rowid in (select value from json_each(?))
returning queue, kind

-- take_places: limited kinds have started some
update redrive_kind set running = running + case when concurrency is null then 0 else v.n end,
  next_at = case when rate_ms is null then null else ? + rate_ms * 1000 end
from (select json_extract(j.value, '$[0]') as kind, json_extract(j.value, '$[1]') as n from json_each(?) j) v
where redrive_kind.kind = v.kind and (concurrency is not null or rate_ms is not null)

-- free_places: limited kinds have ended some
update redrive_kind set running = max(0, running - v.n)
from (select json_extract(j.value, '$[0]') as kind, json_extract(j.value, '$[1]') as n from json_each(?) j) v
where redrive_kind.kind = v.kind and concurrency is not null
returning kind, running, concurrency
