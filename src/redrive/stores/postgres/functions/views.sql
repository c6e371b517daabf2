-- The view of tasks tells them apart, too, and says what holds back a task that waits: rows of a paused queue or kind stay queued.
create or replace view redrive.v_tasks as
  select t.id, t.state, t.kind::text, t.queue::text, t.task_group::text, t.scope::text, t.priority, t.attempt_count, t.max_attempts::integer, t.created_at,
    t.next_attempt_at, t.last_attempt_at, t.lease_expires_at, t.worker_id, t.failed_at, null::timestamptz as finished_at,
    null::real as execution_ms, t.trace_id::text, t.idempotency_key::text, t.replay_count, t.error_code, t.error_message, t.payload::jsonb,
    t.progress, null::jsonb as result, null::boolean as forgotten,
    case t.state
      when 'queued' then (select h.target || ':' || h.name from redrive.hold h
        where (h.target, h.name) in (('queue', t.queue), ('kind', t.kind), ('group', t.task_group)) order by h.target desc limit 1)
      when 'paused' then t.paused_by
    end as paused_by
  from redrive.task t
  union all
  select h.id, h.state, h.kind, h.queue, h.task_group, h.scope, h.priority, h.attempt_count, h.max_attempts, h.created_at,
    null, h.last_attempt_at, null, h.worker_id, null, h.finished_at, h.execution_ms, h.trace_id, h.idempotency_key,
    h.replay_count, null, h.cancel_reason, h.payload, null, h.result,
    case when h.state = 'cancelled' then h.forgotten end, null
  from redrive.history h;

-- Tasks that are failed now, with why.
create or replace view redrive.v_failures as
  select t.id, t.kind, t.queue, t.task_group, t.scope, t.trace_id, t.failed_at, t.attempt_count, t.max_attempts,
    t.error_code, t.error_reason, t.failure_type, t.error_message, t.error_stack, t.error_fingerprint, t.replay_count, t.payload
  from redrive.task t where t.state = 'failed';

-- Terminal failures, each as it was when it happened; the task may have been retried since.
create or replace view redrive.v_dead_letters as
  select d.id, d.task_id, d.dead_at, d.reason, d.kind, d.queue, d.task_group, d.scope, d.trace_id, d.attempt_count,
    d.max_attempts, d.replay_count, d.error_code, d.error_reason, d.failure_type, d.error_message, d.error_fingerprint,
    d.payload
  from redrive.dead_letter d;

-- Who did what, when and why.
create or replace view redrive.v_audit as
  select a.id, a.at, a.actor, a.action, a.reason, a.task_id, a.bulk_id as batch_id, a.target, a.kind, a.scope, a.trace_id, a.before,
    a.after
  from redrive.audit a;

create or replace view redrive.v_counts as
  select x.queue, x.kind, sum(x.queued)::bigint as queued, sum(x.delayed)::bigint as delayed,
    sum(x.running)::bigint as running, sum(x.paused)::bigint as paused, sum(x.failed)::bigint as failed,
    sum(x.completed)::bigint as completed, greatest(sum(x.cancelled), 0)::bigint as cancelled,  -- below: retried after its name lapsed
    sum(x.dead_letters)::bigint as dead_letters, greatest(sum(x.forgotten), 0)::bigint as forgotten
  from (select * from redrive.total union all select * from redrive.total_delta) x
  group by x.queue, x.kind;

-- Tasks that are failed now, by everything they are filtered by.
create or replace view redrive.v_failed_counts as
  select x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint,
    sum(x.n)::bigint as n
  from (select * from redrive.failed_total union all select * from redrive.failed_delta) x
  group by x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint
  having sum(x.n) <> 0;

-- The product's own time series, by minute, hour and day; '' stands for all queues and kinds. Half a minute late.
create or replace view redrive.v_series as
  select s.resolution, s.at, s.queue, s.kind, s.completed, s.failed, s.document
  from redrive.series s;

-- Simple views could be written through; see functions/read_only.sql.
do $$
declare
  v_view text;
begin
  foreach v_view in array array['v_tasks', 'v_failures', 'v_dead_letters', 'v_audit', 'v_counts', 'v_failed_counts',
    'v_series'] loop
    execute format('create or replace trigger read_only instead of insert or update or delete on redrive.%I '
      'for each row execute function redrive.refuse_change()', v_view);
  end loop;
end $$;
