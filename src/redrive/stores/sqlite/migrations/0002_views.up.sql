-- Stable, read-only views for people who look with a SQL client: times are shown as text, UTC.
-- Columns are added, never renamed or removed.

-- Every task, live and finished.
create view redrive_v_tasks as
  select t.id, t.state, t.kind, t.queue, t.task_group, t.scope, t.priority, t.attempt_count, t.max_attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.created_at / 1e6, 'unixepoch') as created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.next_attempt_at / 1e6, 'unixepoch') as next_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.last_attempt_at / 1e6, 'unixepoch') as last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.lease_expires_at / 1e6, 'unixepoch') as lease_expires_at, t.worker_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.failed_at / 1e6, 'unixepoch') as failed_at, null as finished_at,
    null as execution_ms, t.trace_id, t.idempotency_key, t.replay_count, t.error_code, t.error_message, t.payload,
    t.progress, null as result
  from redrive_task t
  union all
  select h.id, h.state, h.kind, h.queue, h.task_group, h.scope, h.priority, h.attempt_count, h.max_attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.created_at / 1e6, 'unixepoch'), null,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.last_attempt_at / 1e6, 'unixepoch'), null, h.worker_id, null,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.finished_at / 1e6, 'unixepoch'), h.execution_ms, h.trace_id, h.idempotency_key,
    h.replay_count, null, h.cancel_reason, h.payload, null, h.result
  from redrive_history h;

-- Tasks that are failed now, with why.
create view redrive_v_failures as
  select t.id, t.kind, t.queue, t.task_group, t.scope, t.trace_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.failed_at / 1e6, 'unixepoch') as failed_at, t.attempt_count, t.max_attempts,
    t.error_code, t.error_reason, t.failure_type, t.error_message, t.error_stack, t.error_fingerprint, t.replay_count, t.payload
  from redrive_task t where t.state = 'failed';

-- Terminal failures, each as it was when it happened; the task may have been retried since.
create view redrive_v_dead_letters as
  select d.id, d.task_id, strftime('%Y-%m-%dT%H:%M:%fZ', d.dead_at / 1e6, 'unixepoch') as dead_at, d.reason, d.kind, d.queue,
    d.task_group, d.scope, d.trace_id, d.attempt_count, d.max_attempts, d.replay_count, d.error_code, d.error_reason,
    d.failure_type, d.error_message, d.error_fingerprint, d.payload
  from redrive_dead_letter d;

-- Who did what, when and why.
create view redrive_v_audit as
  select a.id, strftime('%Y-%m-%dT%H:%M:%fZ', a.at / 1e6, 'unixepoch') as at, a.actor, a.action, a.reason, a.task_id,
    a.bulk_id as batch_id, a.target, a.kind, a.scope, a.trace_id, a.before, a.after
  from redrive_audit a;

-- Exact totals. Completed and cancelled count everything ever finished, also what retention has removed.
create view redrive_v_counts as
  select x.queue, x.kind, x.queued, x.delayed, x.running, x.paused, x.failed, x.completed, x.cancelled,
    x.dead_letters
  from redrive_total x;

-- Tasks that are failed now, by everything they are filtered by.
create view redrive_v_failed_counts as
  select x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint, x.n
  from redrive_failed_total x;

-- The product's own time series, by minute, hour and day; '' stands for all queues and kinds. Half a minute late.
create view redrive_v_series as
  select s.resolution, strftime('%Y-%m-%dT%H:%M:%fZ', s.at / 1e6, 'unixepoch') as at, s.queue, s.kind, s.completed, s.failed,
    s.document
  from redrive_series s;
