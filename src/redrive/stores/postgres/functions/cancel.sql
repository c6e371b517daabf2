-- Ask for a running task to stop; its worker is told at once. Returns 'asked'; 'repeated' if somebody had asked before, whose
-- request stands and is the only one in the audit log; null if the task does not run.
create or replace function redrive.request_cancel(p_id uuid, p_actor text, p_reason text) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_task redrive.task;
begin
  select t.* into v_task from redrive.task t where t.id = p_id and (t.state = 'running') is true for update;
  if not found then return null; end if;
  perform pg_notify('redrive', 'cancel ' || v_task.worker_id);
  if v_task.cancel_requested_at is not null then return 'repeated'; end if;
  update redrive.task t set cancel_requested_at = clock_timestamp() where t.id = p_id;
  insert into redrive.audit (at, actor, action, reason, task_id, kind, scope, trace_id, before, after)
  values (clock_timestamp(), p_actor, 'TASK_CANCEL_REQUEST', p_reason, p_id, v_task.kind, v_task.scope, v_task.trace_id,
    '{"state": "running"}',
    '{"state": "running", "cancel_requested": true}');
  return 'asked';
end $$;
