-- Completion, the common end: rows leave for history. Answers the ids that were completed; the rest lost their lease.
-- No "state = 'running'" here: the planner would read the lease index, dead entries and all. A token exists only
-- while a task runs, so the token alone is the fence. Tasks that a feature reacts to are moved by "move".
-- p_keep: seconds that a task is kept in history; null: as long as all others, 0: it leaves nothing.
create or replace function redrive.complete(p_ids uuid[], p_tokens uuid[], p_ms real[], p_results jsonb[],
  p_keep double precision[] default null) returns uuid[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_done uuid[];
  v_kinds text[];
  v_joins uuid[];
  v_retries text[];
begin
  lock table redrive.move_lock in row share mode;
  with done as (
    delete from redrive.task t
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
      and t.feature is null
    returning t.*
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, result, expires_at, join_id)
    select d.id, clock_timestamp(), d.created_at, d.last_attempt_at, d.lease_token, v.ms, 'completed',
      d.attempt_count, d.max_attempts, d.replay_count, d.timeout_ms, d.priority, d.kind, d.queue, d.task_group, d.scope,
      d.trace_id, d.idempotency_key, d.worker_id, v.result,
      case when v.keep is not null then clock_timestamp() + make_interval(secs => v.keep) end, d.join_id
    from done d join unnest(p_ids, p_tokens, p_ms, p_results, p_keep) v(id, token, ms, result, keep)
      on v.id = d.id and v.token = d.lease_token
    where v.keep is distinct from 0
  ), tally as (
    insert into redrive.total_delta (queue, kind, running, completed)
    select d.queue, d.kind, -count(*), count(*) from done d group by d.queue, d.kind
  )
  select array_agg(d.id), array_agg(d.kind), array_agg(d.join_id) filter (where d.join_id is not null),
    array_agg(d.last_replayed_bulk_id) filter (where d.last_replayed_bulk_id is not null)
  into v_done, v_kinds, v_joins, v_retries from done d;
  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_joins is not null then
    perform redrive.arrive(v_joins, null, array_fill('completed'::redrive.state, array[cardinality(v_joins)]));
  end if;
  if v_retries is not null then
    insert into redrive.retry_delta (bulk_id, outcome, n)
    select r.bulk_id, o.outcome, o.sign * count(*) from unnest(v_retries) r(bulk_id)
    cross join (values ('running', -1), ('completed', 1)) o(outcome, sign) group by r.bulk_id, o.outcome, o.sign;
  end if;
  return v_done;
end $$;
