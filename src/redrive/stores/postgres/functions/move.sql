-- Every other transition, as decided by the state machine: requeue, fail, cancel, pause, resume, retry by an operator.
-- Each element is applied if the row is in one of its source states and the fence holds. Returns the ids moved, and what is
-- known about those that a feature reacts to (the caller does, in this transaction). If there are any, members of joins have
-- not arrived yet: the caller says so when the features have added theirs ("arrive_now"). Tasks of features that are not
-- among p_features are left to a process that knows them, unless the move is a quiet one. "instead": by id, where moves led
-- that met something in their row and so led elsewhere than asked.
create or replace function redrive.move(p_moves jsonb, p_features text[] default '{}', out moved uuid[], out landed jsonb,
  out members jsonb, out instead jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_kinds text[];
  v_due jsonb;
  v_wake jsonb;
  v_revived record;
begin
  lock table redrive.move_lock in row share mode;
  if p_moves @? '$[*].fingerprint ? (@ >= "4")' then p_moves := redrive.with_known_causes(p_moves); end if;
  with v as materialized (
    select * from jsonb_to_recordset(p_moves) x(
      id uuid, token uuid, fenced boolean, expired boolean, sources text[], event text, target redrive.state,
      delay double precision, attempts text, memo jsonb, result jsonb, ms real, code text, cause text, type text,
      message text, stack text, fingerprint text, summary jsonb, dead text, actor text, action text, reason text, bulk_id text,
      seen bigint, keep double precision, quiet boolean, if_cancel_requested redrive.state, if_early redrive.state, death boolean,
      forgotten boolean, alias text, peer text, cut_off boolean)
  ), l as materialized (
    -- Locked in the order of their ids, so that two moves over the same rows cannot deadlock.
    select t.* from redrive.task t where t.id = any (array(select v.id from v)) order by t.id for update
  ), ok as materialized (
    select v.*, l.state as was, l.queue, l.kind, l.scope, l.attempt_count, l.replay_count, l.worker_id, l.max_attempts,
      l.task_group, l.trace_id, l.feature, l.facts, l.join_id, l.last_replayed_bulk_id as retried_by,
      f.final
    from v join l on l.id = v.id
    -- Where each move leads, by what it meets in the row: as the machine says (INSTEAD), which wrote it into the move.
    cross join lateral (select coalesce(
      case when l.cancel_requested_at is not null then v.if_cancel_requested end,
      case when l.next_attempt_at > v_now then v.if_early end, v.target) as final) f
    where l.state::text = any (v.sources) and (not v.fenced or l.lease_token = v.token)
      and (not v.expired or l.lease_expires_at <= v_now) and (v.seen is null or l.failed_seq is not distinct from v.seen)
      and (l.feature is null or l.feature = any (p_features) or v.quiet) and f.final <> l.state
  ), retired as (
    delete from redrive.task t using ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final in ('completed', 'cancelled')))
    returning t.*, ok.event, ok.final, ok.ms, ok.result, ok.reason, ok.keep,
      ok.final = 'cancelled' and ok.forgotten is true as forgotten
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, cancel_reason, payload, result, expires_at, feature, facts, join_id, trace_parent, forgotten)
    select r.id, v_now, r.created_at, r.last_attempt_at, case when r.event <> 'expire' then r.lease_token end, r.ms, r.final,
      r.attempt_count, r.max_attempts, r.replay_count, r.timeout_ms, r.priority, r.kind, r.queue, r.task_group, r.scope,
      r.trace_id, r.idempotency_key, r.worker_id, r.reason, case when r.final = 'cancelled' then r.payload end, r.result,
      case when r.keep is not null then v_now + make_interval(secs => r.keep) end, r.feature, r.facts, r.join_id,
      case when r.final = 'cancelled' then r.trace_parent end, r.forgotten
    from retired r where r.final <> 'completed' or r.keep is distinct from 0
  ), stayed as (
    update redrive.task t set
      state = ok.final,
      position = case when ok.final = 'queued' then nextval('redrive.position') else t.position end,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), ''),
      next_attempt_at = case
        when ok.event in ('pause', 'resume') and ok.final <> 'queued' then t.next_attempt_at
        when ok.final = 'delayed' then v_now + make_interval(secs => ok.delay) end,
      -- A worker that was lost uses up no attempt of what it had: another one is allowed in its place.
      -- What died with its worker before an attempt that a worker lived through is given back: deaths count in a row.
      deaths = case when ok.event in ('redrive', 'snooze', 'retry') then 0 when ok.death then t.deaths + 1 else t.deaths end,
      cut_offs = case when ok.event in ('redrive', 'snooze', 'retry') then 0 when ok.cut_off then t.cut_offs + 1 else t.cut_offs end,
      apart = false,
      max_attempts = case when ok.event in ('redrive', 'snooze', 'retry') then greatest(t.max_attempts - t.deaths, 1)
        when ok.death then least(t.max_attempts + 1, 1000000) else t.max_attempts end,
      attempt_count = case ok.attempts when '-1' then greatest(t.attempt_count - 1 - case when ok.event = 'snooze' then t.deaths else 0 end, 0)
        when 'reset' then 0 else t.attempt_count - case when ok.event = 'retry' then t.deaths else 0 end end,
      lease_token = null, lease_expires_at = null, worker_id = null, cancel_requested_at = null,
      settled_token = case when ok.fenced and ok.event <> 'expire' then ok.token else t.settled_token end,
      paused_by = case when ok.final = 'paused' then ok.actor end,
      memo = case when ok.event = 'redrive' then null else coalesce(ok.memo, t.memo) end,
      progress = case when ok.event in ('redrive', 'retry', 'expire') then null else t.progress end,
      error_code = case when ok.event = 'redrive' then null else coalesce(ok.code, t.error_code) end,
      error_reason = case when ok.event = 'redrive' then null else coalesce(ok.cause, t.error_reason) end,
      failure_type = case when ok.event = 'redrive' then null else coalesce(ok.type, t.failure_type) end,
      error_message = case when ok.event = 'redrive' then null else coalesce(ok.message, t.error_message) end,
      error_stack = case when ok.event = 'redrive' then null when ok.code is null then t.error_stack else ok.stack end,
      error_fingerprint = case when ok.event = 'redrive' then null else coalesce(ok.fingerprint, t.error_fingerprint) end,
      error_summary = case when ok.event = 'redrive' then null when ok.code is null then t.error_summary else ok.summary end,
      failed_at = case when ok.final = 'failed' then v_now end,
      failed_seq = case when ok.final = 'failed' then nextval('redrive.failed_seq') end,
      dead_reason = case when ok.final = 'failed' then ok.dead end,
      replay_count = t.replay_count + case when ok.event = 'redrive' then 1 else 0 end,
      last_replayed_at = case when ok.event = 'redrive' then v_now else t.last_replayed_at end,
      last_replayed_by = case when ok.event = 'redrive' then ok.actor else t.last_replayed_by end,
      last_replayed_reason = case when ok.event = 'redrive' then ok.reason else t.last_replayed_reason end,
      last_replayed_bulk_id = case when ok.event = 'redrive' then ok.bulk_id else t.last_replayed_bulk_id end
    from ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final not in ('completed', 'cancelled')))
    returning t.*, ok.dead
  ), tries as (
    insert into redrive.attempt (task_id, at, lease_token, execution_ms, attempt, replay, code, reason, failure_type,
      message, stack, fingerprint, worker_id, error_summary, peer, build)
    select o.id, v_now, case when o.event <> 'expire' then o.token end, o.ms, o.attempt_count, o.replay_count, o.code, o.cause, o.type, o.message, o.stack,
      o.fingerprint, o.worker_id, o.summary, o.peer, (select w.build from redrive.worker w where w.id = o.worker_id)
    from ok o where o.code is not null
  ), letters as (
    insert into redrive.dead_letter (task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue,
      task_group, scope, trace_id, payload, error_code, error_reason, failure_type, error_message, error_fingerprint,
      error_summary)
    select m.id, v_now, m.attempt_count, m.max_attempts, m.replay_count, m.dead, m.kind, m.queue, m.task_group, m.scope,
      m.trace_id, m.payload, m.error_code, m.error_reason, m.failure_type, m.error_message, m.error_fingerprint, m.error_summary
    from stayed m where m.dead is not null
  ), causes as (
    insert into redrive.failure_delta (fingerprint, n, code, reason, failure_type, message, kind, sample_task, sample_scope,
      at, error_summary, alias)
    -- All of one row, the first: a message beside the sample of another task would be judged by the wrong payload.
    select x.fingerprint, x.n, x.code, x.cause, x.type, x.message, x.kind, x.id, x.scope, v_now, x.summary, x.alias
    from (
      select o.*, count(*) over (partition by o.fingerprint, o.kind) as n,
        row_number() over (partition by o.fingerprint, o.kind order by o.id) as nth
      from ok o where o.code is not null
    ) x where x.nth = 1
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed, completed, cancelled,
      dead_letters, forgotten)
    select x.queue, x.kind, sum(x.n) filter (where x.state = 'queued'), sum(x.n) filter (where x.state = 'delayed'),
      sum(x.n) filter (where x.state = 'running'), sum(x.n) filter (where x.state = 'paused'),
      sum(x.n) filter (where x.state = 'failed'), sum(x.n) filter (where x.state = 'completed'),
      sum(x.n) filter (where x.state = 'cancelled'), sum(x.letters), sum(x.forgotten)
    from (
      select o.queue, o.kind, o.was as state, -1 as n, 0 as letters, 0 as forgotten from ok o
      union all
      select o.queue, o.kind, o.final, 1, case when o.dead is not null and o.final not in ('completed', 'cancelled') then 1 else 0 end,
        case when o.final = 'cancelled' and o.forgotten then 1 else 0 end
      from ok o
      -- one row for each state, so that no sum is null
      union all select distinct o.queue, o.kind, s.state, 0, 0, 0 from ok o cross join unnest(enum_range(null::redrive.state)) s(state)
    ) x group by x.queue, x.kind
  ), retries as (
    -- What became of tasks that a bulk retry brought back. One that has failed stays so for it, whatever is done with it later.
    insert into redrive.retry_delta (bulk_id, outcome, cause, n)
    select x.bulk_id, x.outcome, x.cause, sum(x.n) from ok o cross join lateral (values
      (case when o.event = 'redrive' then o.bulk_id end, 'retried', '', 1),
      (case when o.event = 'redrive' then o.retried_by end, 'again', '', 1),
      (case when o.was = 'running' then o.retried_by end, 'running', '', -1),
      (case when o.event <> 'redrive' and o.was <> 'failed' and o.final in ('completed', 'failed', 'cancelled') then o.retried_by end,
        o.final::text, case when o.final = 'failed' then coalesce(o.fingerprint, '') else '' end, 1)
    ) x(bulk_id, outcome, cause, n)
    where (o.retried_by is not null or o.event = 'redrive') and x.bulk_id is not null group by 1, 2, 3
  ), failing as (
    insert into redrive.failed_delta (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
      fingerprint, n)
    select x.kind, x.queue, coalesce(x.task_group, ''), x.error_code, x.error_reason, x.failure_type, x.dead_reason,
      x.error_fingerprint, sum(x.n)
    from (
      select m.kind, m.queue, m.task_group, m.error_code, m.error_reason, m.failure_type, m.dead_reason,
        m.error_fingerprint, 1 as n
      from stayed m where m.state = 'failed'
      union all
      select l.kind, l.queue, l.task_group, l.error_code, l.error_reason, l.failure_type, l.dead_reason,
        l.error_fingerprint, -1
      from ok o join l on l.id = o.id where o.was = 'failed'
    ) x group by x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.error_fingerprint
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, bulk_id, kind, scope, trace_id, before, after)
    select v_now, o.actor, o.action, o.reason, o.id, o.bulk_id, l.kind, l.scope, l.trace_id,
      jsonb_build_object('state', o.was, 'attempt_count', o.attempt_count), jsonb_build_object('state', o.final)
    from ok o join l on l.id = o.id where o.actor is not null
  )
  select (select array_agg(o.id) from ok o),
    (select array_agg(o.kind) from ok o where o.was = 'running'),
    (select jsonb_object_agg(w.queue, w.due) from (
      select m.queue, min(m.next_attempt_at) as due from stayed m where m.state = 'delayed' group by m.queue) w),
    (select jsonb_object_agg(w.queue, w.position) from (
      select m.queue, min(m.position) as position from stayed m where m.state = 'queued' group by m.queue) w),
    (select jsonb_agg(jsonb_build_object('id', o.join_id, 'was', o.was, 'now', o.final)) from ok o where o.join_id is not null),
    (select jsonb_agg(redrive.landing(o.id, o.was, o.final, o.kind, o.queue, o.attempt_count, o.max_attempts, o.replay_count,
      o.task_group, o.scope, o.trace_id, o.feature, o.facts, o.join_id)) from ok o where o.feature is not null and o.quiet is not true),
    (select jsonb_object_agg(o.id, o.final) from ok o where o.final <> o.target)
  into moved, v_kinds, v_due, v_wake, members, landed, instead;

  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_wake is not null then
    perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
  end if;
  if v_due is not null then
    perform redrive.wake_due(w.key, w.value::timestamptz) from jsonb_each_text(v_due) w;
  end if;
  moved := coalesce(moved, '{}');
  if p_moves @? '$[*] ? (@.event == "redrive")' then
    select * into v_revived from redrive.revive(p_moves, moved, p_features);
    moved := moved || v_revived.revived;
    landed := coalesce(landed || v_revived.landed, landed, v_revived.landed);
    members := coalesce(members || v_revived.members, members, v_revived.members);
  end if;
  if members is not null and landed is null then
    perform redrive.arrive_now(members);
    members := null;
  end if;
end $$;

-- What a reaction is told about a task.
create or replace function redrive.landing(p_id uuid, p_was redrive.state, p_now redrive.state, p_kind text, p_queue text, p_attempts integer,
  p_max_attempts integer, p_replays integer, p_group text, p_scope text, p_trace text, p_feature text, p_facts jsonb, p_join uuid) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('id', p_id, 'was', p_was, 'state', p_now, 'kind', p_kind, 'queue', p_queue, 'attempts', p_attempts,
    'max_attempts', p_max_attempts, 'replays', p_replays, 'group', p_group, 'scope', p_scope, 'trace_id', p_trace,
    'feature', p_feature, 'facts', p_facts, 'join', p_join)
$$;
