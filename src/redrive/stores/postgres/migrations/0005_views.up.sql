-- Stable, read-only views for people who look with a SQL client. Columns are added, never renamed or removed.

-- Every task, live and finished.
create view redrive.v_tasks as
  select t.id, t.state, t.kind, t.queue, t.task_group, t.scope, t.priority, t.attempt_count, t.max_attempts, t.created_at,
    t.next_attempt_at, t.last_attempt_at, t.lease_expires_at, t.worker_id, t.failed_at, null::timestamptz as finished_at,
    null::real as execution_ms, t.trace_id, t.idempotency_key, t.replay_count, t.error_code, t.error_message, t.payload,
    t.progress, null::jsonb as result
  from redrive.task t
  union all
  select h.id, h.state, h.kind, h.queue, h.task_group, h.scope, h.priority, h.attempt_count, h.max_attempts, h.created_at,
    null, h.last_attempt_at, null, h.worker_id, null, h.finished_at, h.execution_ms, h.trace_id, h.idempotency_key,
    h.replay_count, null, h.cancel_reason, h.payload, null, h.result
  from redrive.history h;

-- Tasks that are failed now, with why.
create view redrive.v_failures as
  select t.id, t.kind, t.queue, t.task_group, t.scope, t.trace_id, t.failed_at, t.attempt_count, t.max_attempts,
    t.error_code, t.error_reason, t.failure_type, t.error_message, t.error_stack, t.error_fingerprint, t.replay_count, t.payload
  from redrive.task t where t.state = 'failed';

-- Exact totals. Completed and cancelled count everything ever finished, also what retention has removed.
create view redrive.v_counts as
  select x.queue, x.kind, sum(x.queued)::bigint as queued, sum(x.delayed)::bigint as delayed,
    sum(x.running)::bigint as running, sum(x.paused)::bigint as paused, sum(x.failed)::bigint as failed,
    sum(x.completed)::bigint as completed, sum(x.cancelled)::bigint as cancelled
  from (select * from redrive.total union all select * from redrive.total_delta) x
  group by x.queue, x.kind;

-- Tasks that are failed now, by everything they are filtered by.
create view redrive.v_failed_counts as
  select x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint,
    sum(x.n)::bigint as n
  from (select * from redrive.failed_total union all select * from redrive.failed_delta) x
  group by x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint
  having sum(x.n) <> 0;
