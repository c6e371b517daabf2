-- An operator's retry of a cancelled task: back from history into the live table. An id may be in history more than once
-- (a caller's own, used again): its newest row counts, and none while a live task has it.
create or replace function redrive.revive(p_moves jsonb, p_moved uuid[], p_features text[], out revived uuid[], out landed jsonb,
  out members jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids uuid[] := array(
    select x.id from jsonb_to_recordset(p_moves) x(id uuid, event text, seen bigint)
    where x.event = 'redrive' and x.seen is null and x.id <> all (p_moved));
begin
  if cardinality(v_ids) = 0 then
    revived := '{}';
    return;
  end if;
  with newest as materialized (
    select distinct on (h.id) h.id, h.tableoid as part, h.ctid as place from redrive.history h
    where h.id = any (v_ids) and not exists (select 1 from redrive.task t where t.id = h.id)
    order by h.id, h.finished_at desc
  ), old as (
    delete from redrive.history h using newest n
    where h.id = n.id and h.tableoid = n.part and h.ctid = n.place and h.state = 'cancelled' and h.erased_at is null
      and (h.feature is null or h.feature = any (p_features)) returning h.*
  ), new as (
    insert into redrive.task (id, created_at, position, state, max_attempts, timeout_ms, priority, kind, queue, lane,
      task_group, scope, trace_id, idempotency_key, payload, replay_count, last_replayed_at, last_replayed_by,
      last_replayed_reason, last_replayed_bulk_id, feature, facts, join_id, trace_parent)
    select o.id, o.created_at, nextval('redrive.position'), 'queued', o.max_attempts, o.timeout_ms, o.priority, o.kind,
      o.queue, coalesce((select k.kind from redrive.kind k where k.kind = o.kind), ''), o.task_group, o.scope, o.trace_id,
      o.idempotency_key, o.payload, o.replay_count + 1, v_now, x.actor, x.reason, x.bulk_id,
      o.feature, o.facts, o.join_id, o.trace_parent
    from old o join jsonb_to_recordset(p_moves) x(id uuid, actor text, reason text, bulk_id text) on x.id = o.id
    returning task.*
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, cancelled, forgotten)
    select o.queue, o.kind, count(*), -count(*), -count(*) filter (where o.forgotten) from old o group by o.queue, o.kind
  ), retries as (
    insert into redrive.retry_delta (bulk_id, outcome, n)
    select n.last_replayed_bulk_id, 'retried', count(*) from new n where n.last_replayed_bulk_id is not null group by 1
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, bulk_id, kind, scope, trace_id, before, after)
    select v_now, x.actor, x.action, x.reason, n.id, x.bulk_id, n.kind, n.scope, n.trace_id, '{"state": "cancelled"}', '{"state": "queued"}'
    from new n join jsonb_to_recordset(p_moves) x(id uuid, actor text, action text, reason text, bulk_id text) on x.id = n.id
    where x.actor is not null
  ), woken as (
    select redrive.wake(n.queue, min(n.position)) from new n group by n.queue
  )
  select coalesce(array_agg(n.id), '{}'), 
    jsonb_agg(jsonb_build_object('id', n.join_id, 'was', 'cancelled', 'now', 'queued')) filter (where n.join_id is not null),
    jsonb_agg(redrive.landing(n.id, 'cancelled', 'queued', n.kind, n.queue, n.attempt_count, n.max_attempts, n.replay_count,
      n.task_group, n.scope, n.trace_id, n.feature, n.facts, n.join_id)) filter (where n.feature is not null)
  into revived, members, landed from new n cross join (select count(*) from woken) w;
end $$;
