delete from redrive_record where collection = 'access';
drop trigger redrive_total_began;
drop table redrive_name_bound;
drop table redrive_known_name;
drop table redrive_used_name;
alter table redrive_idempotency_key drop column queue;

alter table redrive_worker drop column build;
alter table redrive_attempt drop column build;
alter table redrive_attempt drop column peer;
drop index redrive_failure_group_alias;
alter table redrive_failure_group drop column alias;

alter table redrive_task drop column cut_offs;
alter table redrive_worker drop column cut_off_at;
alter table redrive_worker drop column birth;
alter table redrive_worker drop column machine;

drop index redrive_task_retried;
drop table redrive_retry_total;
drop view redrive_v_tasks;
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
drop view redrive_v_counts;
create view redrive_v_counts as
  select x.queue, x.kind, x.queued, x.delayed, x.running, x.paused, x.failed, x.completed, x.cancelled,
    x.dead_letters
  from redrive_total x;
alter table redrive_total drop column forgotten;
alter table redrive_history drop column forgotten;
