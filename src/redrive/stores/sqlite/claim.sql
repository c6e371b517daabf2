-- Statements that look for ready rows name their index: with statistics (ANALYZE) SQLite would read a large queue from
-- end to end, expecting to find something soon.

-- rules: what is paused, kinds with a lane of their own, and open circuits that let no probe start now
select (select json_group_array(json_array(target, name)) from redrive_hold),
  (select json_group_array(json_array(kind, concurrency, rate_ms, running, next_at, circuit)) from redrive_kind),
  (select json_group_array(c.name) from redrive_circuit c where c.open and (c.until > ? or exists (
    select 1 from redrive_task t where t.id = c.probe and t.state = 'running' and t.lease_token = c.token)))

-- rows: what running a task needs, of the rows that are looked for
select json_group_array(json_array(c.rowid, c.id, c.kind, c.queue, c.priority, c.position,
    case when not c.large then c.payload end, c.attempt_count, c.max_attempts, c.created_at, c.task_group, c.scope, c.trace_id,
    c.idempotency_key, c.timeout_ms, case when not c.large then c.memo end, c.replay_count, c.large, c.feature,
    c.join_id, c.due, c.bulk_id))
from (
  select t.rowid, t.id, t.kind, t.queue, t.priority, t.position, t.payload, t.attempt_count, t.max_attempts, t.created_at,
    t.task_group, t.scope, coalesce(t.trace_parent, t.trace_id) as trace_id, t.idempotency_key, t.timeout_ms, t.memo, t.replay_count, t.feature, t.join_id,
    case when t.settled_token is null and t.attempt_count = 0
      then max(t.created_at, coalesce(t.run_at, 0), coalesce(t.last_replayed_at, 0)) end as due,
    t.last_replayed_bulk_id as bulk_id, coalesce(length(t.payload), 0) + coalesce(length(t.memo), 0) > 4000 as large
  from redrive_task t :rows) c

-- open: the next of one queue where nothing is limited, held or set aside
indexed by redrive_task_ready where t.state = 'queued' and t.queue = ? and t.lane = '' order by t.priority, t.position limit ?

-- picked: these rows
where t.rowid in (select value from json_each(?))

-- large: what does not travel with the others, unless it was written past the limit
select payload, memo from redrive_task where rowid = ?1 and coalesce(length(cast(payload as blob)), 0) <= ?2

-- take: they are this worker's now
update redrive_task set state = 'running', attempt_count = attempt_count + 1, lease_token = ?, lease_expires_at = ?,
  last_attempt_at = ?, worker_id = ?
where rowid in (select value from json_each(?))

-- waiting: lanes with something ready, of these queues
select json_group_array(json_array(q.value, v.value)) from json_each(?) q cross join json_each(?) v
where exists (
  select 1 from redrive_task c indexed by redrive_task_ready
  where c.state = 'queued' and c.queue = q.value and c.lane = v.value)

-- ready: one lane of a queue, in order
select json_group_array(json_array(c.priority, c.position, c.rowid, c.kind, c.task_group, c.lane)) from (
  select t.priority, t.position, t.rowid, t.kind, t.task_group, t.lane from redrive_task t indexed by redrive_task_ready
  where t.state = 'queued' and t.queue = ? and t.lane = ? order by t.priority, t.position limit ?) c

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

-- probe: this task tries whether the other side is back
update redrive_circuit set probe = ?, token = ? where name = ?

-- free_places: limited kinds have ended some
update redrive_kind set running = max(0, running - v.n)
from (select json_extract(j.value, '$[0]') as kind, json_extract(j.value, '$[1]') as n from json_each(?) j) v
where redrive_kind.kind = v.kind and concurrency is not null
returning kind, running, concurrency
