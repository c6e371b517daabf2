-- suspects: rows that claims and ticks of these queues meet first
select rowid from (
  select rowid from redrive_task where state = 'queued' and queue in (select value from json_each(?1))
  order by queue, lane, priority, position limit ?3)
union select rowid from (
  select rowid from redrive_task where state = 'delayed' and next_attempt_at <= ?2 order by next_attempt_at limit ?3)
union select rowid from (
  select t.rowid from redrive_resuming g cross join redrive_task t on t.state = 'paused' and t.task_group = g.task_group
  limit ?3)

-- expired: leases that ran out
select rowid from redrive_task where state = 'running' and lease_expires_at <= ? order by lease_expires_at limit ?

-- row: one row, whatever is in it, but for a payload that is over the limit
select id, kind, queue, state, priority, created_at, run_at, next_attempt_at, last_attempt_at, lease_token, lease_expires_at,
  cancel_requested_at, attempt_count, max_attempts, timeout_ms, task_group, scope, trace_id, idempotency_key, worker_id,
  memo, progress, feature, length(cast(payload as blob)) as payload_bytes,
  case when length(cast(payload as blob)) <= ?2 then payload end as payload
from redrive_task where rowid = ?1

-- as_ready: what a promotion does
update redrive_task set state = 'queued', lease_token = null, lane = kind where rowid = ?

-- as_claimed: what a claim does
update redrive_task set state = 'running', attempt_count = attempt_count + 1, lease_token = '-', worker_id = '-' where rowid = ?

-- as_held: what a held group does
update redrive_task set state = 'paused', lease_token = null, paused_by = 'group:' || task_group where rowid = ?

-- mend: values that every statement can work with
update redrive_task set id = ?, created_at = ?, run_at = ?, next_attempt_at = ?, last_attempt_at = ?, lease_token = ?,
  lease_expires_at = ?, cancel_requested_at = ?, attempt_count = ?, max_attempts = ?, timeout_ms = ?, priority = ?, kind = ?,
  queue = ?, lane = '', task_group = ?, scope = ?, trace_id = ?, trace_parent = null, idempotency_key = ?,
  worker_id = ?, memo = ?, progress = ?
where rowid = ?

-- payload: one that could not be read was replaced
update redrive_task set payload = ? where rowid = ?
