-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_catalog.pg_proc p where p.pronamespace = 'redrive'::regnamespace and p.proname = any (array[
      'beat',
      'fleet',
      'left_behind',
      'judge',
      'end_leases',
      'bury',
      'set_apart',
      'drain',
      'expired_leases',
      'grant_again'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;

-- functions/add.sql

-- What a key stands for. The separator keeps kind "A" with payload "12" apart from kind "A1" with payload "2".
create or replace function redrive.digest(p_kind text, p_payload jsonb) returns bytea
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select sha256(convert_to(p_kind || chr(31) || coalesce(p_payload::text, ''), 'UTF8'))
$$;

-- A caller's own id names one task for ever: one that has finished does not begin again. Asked after the insert, which
-- waits for whoever moves the task to the history at this moment; and only for ids that are not of these ten minutes,
-- because it looks into every day of the history.
create or replace function redrive.refuse_finished(p_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
begin
  select h.id into v_id from redrive.history h
  where h.id = any (p_ids) and exists (select 1 from redrive.task t where t.id = h.id) limit 1;
  if v_id is not null then
    raise exception 'task % has finished, and its id cannot be used again', v_id using
      errcode = 'unique_violation', hint = 'leave the id out, or give each task its own';
  end if;
end $$;

-- Many tasks, as columns; a null array means the default for all, and one kind, queue, priority or max_attempts is
-- everybody's. Answers only the rows that were not created because their key already names a task. p_again: the same
-- ids may have landed before. For the fleet's own use: producers call "enqueue".
create or replace function redrive.add(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false, p_features text[] default null,
  p_facts jsonb[] default null, p_joins uuid[] default null
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_priority constant integer := case when cardinality(p_priorities) = 1 then p_priorities[1] end;
  v_max_attempts constant integer := case when cardinality(p_max_attempts) = 1 then p_max_attempts[1] end;
  v_lanes constant boolean := exists (select 1 from redrive.kind);
  v_taken text[];
  v_skip uuid[] := '{}';
  v_queues jsonb;
  v_joins uuid[];
begin
  if exists (
    select 1 from unnest(array[cardinality(p_kinds), cardinality(p_queues), cardinality(p_priorities),
      cardinality(p_max_attempts)]) n where n <> 1 and n <> cardinality(p_ids)
  ) then
    raise exception 'give one kind, queue, priority and max_attempts, or as many as there are ids' using
      errcode = 'invalid_parameter_value';
  end if;
  perform redrive.check_numbers(p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_priorities);
  perform redrive.check_name('kind', k.name) from (select distinct u.name from unnest(p_kinds) u(name)) k;
  perform redrive.check_name('queue', q.name) from (select distinct u.name from unnest(p_queues) u(name)) q;
  -- Called for those that are wrong, to say so.
  perform redrive.check_label(l.what, u.v)
  from (values ('group', p_groups), ('scope', p_scopes), ('trace_id', p_traces), ('idempotency_key', p_keys)) l(what, given)
  cross join unnest(l.given) u(v)
  where char_length(u.v) not between 1 and 512 or octet_length(u.v) > 1536
    or u.v ~ '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]';

  if p_keys is not null then
    -- Sorted by key, so that two bulk calls with the same keys wait for each other instead of deadlocking.
    with taken as (
      insert into redrive.idempotency_key as ik (key, task_id, digest, created_at)
      select distinct on (x.key) x.key, x.id, redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload), v_now
      from unnest(p_ids, p_kinds, p_payloads, p_keys) with ordinality x(id, kind, payload, key, ord)
      where x.key is not null order by x.key, x.ord
      on conflict do nothing returning ik.key
    )
    select coalesce(array_agg(t.key), '{}') into v_taken from taken t;
  end if;
  if cardinality(v_taken) < cardinality(array_remove(p_keys, null)) then
    -- A new statement sees what concurrent callers committed while we waited for their keys. A key that was not taken just
    -- now names a task that is there or was: another one, or this very one, brought in by an earlier call.
    return query
    select x.id, ik.task_id, ik.digest <> redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload)
    from unnest(p_ids, p_kinds, p_payloads, p_keys) x(id, kind, payload, key)
    join redrive.idempotency_key ik on ik.key = x.key left join unnest(v_taken) t(key) on t.key = x.key
    where ik.task_id <> x.id or (t.key is null and not p_again);
    v_skip := array(
      select x.id from unnest(p_ids, p_keys) x(id, key)
      join redrive.idempotency_key ik on ik.key = x.key left join unnest(v_taken) t(key) on t.key = x.key
      where ik.task_id <> x.id or t.key is null);
  end if;
  if p_again then
    v_skip := v_skip || array(select t.id from redrive.task t where t.id = any (p_ids))
      || array(select h.id from redrive.history h where h.id = any (p_ids));
  end if;

  with new as (
    insert into redrive.task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
      kind, queue, lane, task_group, scope, trace_id, idempotency_key, payload, feature, facts, join_id)
    select x.id, v_now, case when x.due > v_now then 0 else nextval('redrive.position') end, x.due,
      case when x.due > v_now then x.due end,
      case when x.due > v_now then 'delayed' else 'queued' end::redrive.state, coalesce(x.max_attempts, v_max_attempts, 5),
      x.timeout_ms, coalesce(x.priority, v_priority, 0), x.kind, coalesce(x.queue, p_queues[1]),
      case when v_lanes then coalesce((select k.kind from redrive.kind k where k.kind = x.kind), '') else '' end,
      x.task_group, x.scope, x.trace_id, x.key, x.payload, x.feature, x.facts, x.join_id
    from (
      select u.id, coalesce(u.given_kind, p_kinds[1]) as kind, u.queue, u.payload, u.priority, u.max_attempts, u.timeout_ms,
        u.task_group, u.scope, u.trace_id, u.key, u.feature, u.facts, u.join_id,
        coalesce(u.run_at, v_now + make_interval(secs => u.delay)) as due
      from unnest(p_ids, p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts, p_delays, p_run_ats, p_timeouts_ms,
        p_groups, p_scopes, p_traces, p_keys, p_features, p_facts, p_joins)
        u(id, given_kind, queue, payload, priority, max_attempts, delay, run_at, timeout_ms, task_group, scope, trace_id, key,
          feature, facts, join_id)
      where u.id <> all (v_skip)
    ) x
    -- Without "on conflict", which costs a fifth more: an earlier try of the same call that is committing at this
    -- moment ends in a unique violation, and the next try sees what it committed.
    returning task.queue, task.kind, task.state, task.position, task.next_attempt_at, task.join_id
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed)
    select n.queue, n.kind, count(*) filter (where n.state = 'queued'), count(*) filter (where n.state = 'delayed')
    from new n group by n.queue, n.kind
  )
  -- Once for each queue, and after the insert, not while it runs.
  select (select jsonb_agg(q.*) from (
      select n.queue, min(n.position) filter (where n.state = 'queued') as position, min(n.next_attempt_at) as due
      from new n group by n.queue) q),
    (select array_agg(n.join_id) from new n where n.join_id is not null)
  into v_queues, v_joins;
  if v_joins is not null then perform redrive.add_members(v_joins); end if;
  perform case when q.position is not null then redrive.wake(q.queue, q.position) end,
    case when q.due is not null then redrive.wake_due(q.queue, q.due) end
  from jsonb_to_recordset(v_queues) q(queue text, position bigint, due timestamptz);
end $$;

-- functions/move.sql

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
  if p_moves @? '$[*].former' then p_moves := redrive.with_known_causes(p_moves); end if;
  with v as materialized (
    select * from jsonb_to_recordset(p_moves) x(
      id uuid, token uuid, fenced boolean, expired boolean, sources text[], event text, target redrive.state,
      delay double precision, attempts text, memo jsonb, result jsonb, ms real, code text, cause text, type text,
      message text, stack text, fingerprint text, summary jsonb, dead text, actor text, action text, reason text, bulk_id text,
      seen bigint, keep double precision, quiet boolean, if_cancel_requested redrive.state, if_early redrive.state)
  ), l as materialized (
    -- Locked in the order of their ids, so that two moves over the same rows cannot deadlock.
    select t.* from redrive.task t where t.id = any (array(select v.id from v)) order by t.id for update
  ), ok as materialized (
    select v.*, l.state as was, l.queue, l.kind, l.scope, l.attempt_count, l.replay_count, l.worker_id, l.max_attempts,
      l.task_group, l.trace_id, l.feature, l.facts, l.join_id,
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
    returning t.*, ok.event, ok.final, ok.ms, ok.result, ok.reason, ok.keep
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, cancel_reason, payload, result, expires_at, feature, facts, join_id)
    select r.id, v_now, r.created_at, r.last_attempt_at, case when r.event <> 'expire' then r.lease_token end, r.ms, r.final,
      r.attempt_count, r.max_attempts, r.replay_count, r.timeout_ms, r.priority, r.kind, r.queue, r.task_group, r.scope,
      r.trace_id, r.idempotency_key, r.worker_id, r.reason, case when r.final = 'cancelled' then r.payload end, r.result,
      case when r.keep is not null then v_now + make_interval(secs => r.keep) end, r.feature, r.facts, r.join_id
    from retired r where r.final <> 'completed' or r.keep is distinct from 0
  ), stayed as (
    update redrive.task t set
      state = ok.final,
      position = case when ok.final = 'queued' then nextval('redrive.position') else t.position end,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), ''),
      next_attempt_at = case
        when ok.event in ('pause', 'resume') and ok.final <> 'queued' then t.next_attempt_at
        when ok.final = 'delayed' then v_now + make_interval(secs => ok.delay) end,
      attempt_count = case ok.attempts when '-1' then t.attempt_count - 1 when 'reset' then 0 else t.attempt_count end,
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
      message, stack, fingerprint, worker_id, error_summary)
    select o.id, v_now, case when o.event <> 'expire' then o.token end, o.ms, o.attempt_count, o.replay_count, o.code, o.cause, o.type, o.message, o.stack,
      o.fingerprint, o.worker_id, o.summary
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
      at, error_summary)
    -- All of one row, the first: a message beside the sample of another task would be judged by the wrong payload.
    select x.fingerprint, x.n, x.code, x.cause, x.type, x.message, x.kind, x.id, x.scope, v_now, x.summary
    from (
      select o.*, count(*) over (partition by o.fingerprint, o.kind) as n,
        row_number() over (partition by o.fingerprint, o.kind order by o.id) as nth
      from ok o where o.code is not null
    ) x where x.nth = 1
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed, completed, cancelled,
      dead_letters)
    select x.queue, x.kind, sum(x.n) filter (where x.state = 'queued'), sum(x.n) filter (where x.state = 'delayed'),
      sum(x.n) filter (where x.state = 'running'), sum(x.n) filter (where x.state = 'paused'),
      sum(x.n) filter (where x.state = 'failed'), sum(x.n) filter (where x.state = 'completed'),
      sum(x.n) filter (where x.state = 'cancelled'), sum(x.letters)
    from (
      select o.queue, o.kind, o.was as state, -1 as n, 0 as letters from ok o
      union all
      select o.queue, o.kind, o.final, 1, case when o.dead is not null and o.final not in ('completed', 'cancelled') then 1 else 0 end
      from ok o
      -- one row for each state, so that no sum is null
      union all select distinct o.queue, o.kind, s.state, 0, 0 from ok o cross join unnest(enum_range(null::redrive.state)) s(state)
    ) x group by x.queue, x.kind
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

-- functions/tick.sql

-- A worker's beat. Promotes what is due in its queues, hands out duties (each to one worker of the fleet per interval), and answers
-- which of the worker's tasks somebody wants cancelled and in how many seconds something will be due.
-- p_from: nothing due or expired lies before it, as far as an earlier tick saw (checked_to); index entries of long
-- promoted and settled rows may, and are not walked again.
create or replace function redrive.tick(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_stopping boolean, p_duties text[], p_every double precision[], p_from timestamptz, p_limit integer, p_beat_ms integer,
  p_features text[] default '{}', p_while_duties text[] default '{}', p_while_collections text[] default '{}',
  p_while_states text[] default '{}', p_sheet_id text default null, p_sheet text default null
) returns table (duties text[], cancels uuid[], next_due double precision, promoted integer, checked_to timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_from constant timestamptz := coalesce(p_from, '-infinity');
  v_expired boolean;
  v_back integer := 0;
begin
  -- A write a few times a minute is enough to be seen alive.
  update redrive.worker w set seen_at = v_now, running = p_running, stopping = p_stopping
  where w.id = p_worker and (w.seen_at < v_now - interval '4 s' or w.stopping <> p_stopping
    or (p_stopping and w.running <> p_running));
  if not found and not exists (
    select 1 from redrive.worker w where w.id = p_worker and w.host = p_host and w.pid = p_pid and w.queues = p_queues)
  then
    insert into redrive.worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms)
    values (p_worker, p_host, p_pid, p_queues, p_concurrency, p_running, p_version, v_now, v_now, p_stopping, p_beat_ms)
    -- Another process under the same name.
    on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues,
      concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
      started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
      beat_ms = excluded.beat_ms;
  end if;
  if p_sheet_id is not null then
    -- Sent again because the answer was lost, it is the one that was taken last.
    update redrive.worker w set sheet_id = p_sheet_id where w.id = p_worker and w.sheet_id is distinct from p_sheet_id;
    if found then insert into redrive.series_sheet (at, document) values (v_now, p_sheet); end if;
  end if;

  if exists (select 1 from unnest(p_duties) u(name) where not exists (select 1 from redrive.duty d where d.name = u.name)) then
    insert into redrive.duty (name, next_at) select u.name, v_now from unnest(p_duties) u(name) on conflict do nothing;
  end if;
  with won as (
    select d.name from redrive.duty d where d.name = any (p_duties) and (d.next_at <= v_now
      -- further ahead than its interval (and a minute, for a tick that has waited): by a clock that was wrong
      or d.next_at > v_now + make_interval(secs => 60 + (select u.every from unnest(p_duties, p_every) u(name, every) where u.name = d.name)))
    for update skip locked
  ), taken as (
    update redrive.duty d set next_at = v_now + make_interval(secs => u.every)
    from unnest(p_duties, p_every) u(name, every)
    where d.name = u.name and d.name = any (array(select w.name from won w))
    returning d.name
  )
  select array_agg(t.name) into duties from taken t;
  -- Do not send a worker on an errand with nothing to do.
  v_expired := exists (
    select 1 from redrive.task t
    where t.state = 'running' and t.lease_expires_at <= v_now and t.lease_expires_at >= v_from
      and (t.feature is null or t.feature = any (p_features)));
  if not v_expired then
    duties := array(select d.name from unnest(duties) d(name) where d.name <> 'recover' and d.name not like 'recover:%');
  end if;
  if not exists (select 1 from redrive.total_delta) and not exists (select 1 from redrive.failure_delta)
    and not exists (select 1 from redrive.failed_delta) and not exists (select 1 from redrive.join_delta) then
    duties := array_remove(duties, 'fold');
  end if;
  duties := array(
    select d.name from unnest(duties) d(name) where not exists (
      select 1 from unnest(p_while_duties, p_while_collections, p_while_states) w(name, collection, state)
      where w.name = d.name
        and not exists (select 1 from redrive.record r where r.collection = w.collection and r.state = w.state)));
  if exists (select 1 from redrive.schedule s where s.next_at <= v_now or s.last_at > v_now + interval '1 min') then duties := duties || array['cron']; end if;

  promoted := redrive.promote(p_queues, v_from, p_limit);
  if exists (select 1 from redrive.resuming) then
    v_back := redrive.resume_groups(p_limit);
  end if;
  -- A minute back, for transactions that commit late; what is later still is found by a tick without p_from.
  checked_to := case when promoted < p_limit and not v_expired then v_now - interval '1 min' end;

  cancels := array(
    select t.id from redrive.task t
    where t.worker_id = p_worker and t.cancel_requested_at is not null and (t.state = 'running') is true);
  -- What is overdue now is locked by someone who is at it, or comes with the next call.
  next_due := case when promoted >= p_limit or v_back >= p_limit then 0 else extract(epoch from least(
    (select min(r.next_attempt_at) from unnest(p_queues) q(queue) cross join lateral (
      select t.next_attempt_at from redrive.task t
      where t.state = 'delayed' and t.queue = q.queue and t.next_attempt_at > v_now
      order by t.next_attempt_at limit 1) r),
    (select min(s.next_at) from redrive.schedule s where s.next_at > v_now),
    (select min(k.next_at) from redrive.kind k where k.rate_ms is not null and k.next_at > v_now)) - clock_timestamp()) end;
  promoted := promoted + v_back;
  return next;
end $$;

-- functions/expired.sql

-- Leases that ran out, of tasks of one feature or of none. The recovering worker decides by the state machine and moves them, fenced by these tokens.
-- (select clock_timestamp()): asked once, it bounds the index scan; asked per row, every live lease would be read.
create or replace function redrive.expired(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision
  from redrive.task t
  where t.state = 'running' and t.lease_expires_at <= (select clock_timestamp())
    and t.lease_expires_at >= coalesce(p_from, '-infinity') and t.feature is not distinct from p_feature
  order by t.lease_expires_at limit p_limit
$$;

-- functions/grants.sql

-- Who may do what. Nothing is open to everyone, and no role but the owner writes to tables by hand: workers change tasks
-- through functions that run with the owner's rights and keep totals, dead letters and audit right. Run as the owner:
--   select redrive.grant_producer('web'), redrive.grant_worker('worker'), redrive.grant_viewer('analyst');

-- A producer may enqueue, and nothing else.
create or replace function redrive.grant_producer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant select on redrive.migration to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, '
    'interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean) to %I', p_role);
end $$;

-- A worker may run tasks and operate: read everything, call the functions, and keep small documents and the audit log.
create or replace function redrive.grant_worker(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
  v_table regclass;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant select on all tables in schema redrive to %I', p_role);
  execute format('grant insert, update, delete on redrive.record to %I', p_role);
  execute format('grant insert, delete on redrive.audit to %I', p_role);
  -- Tables of features, which are named after them: written by the features' own statements.
  for v_table in
    select c.oid from pg_class c
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p') and exists (
      select 1 from redrive.migration m where m.feature <> '' and (c.relname = m.feature or starts_with(c.relname, m.feature || '_')))
  loop
    execute format('grant insert, update, delete on %s to %I', v_table, p_role);
  end loop;
  -- The others are inner parts of these, and would run with the caller's rights, as "apply_own" is meant to.
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and (p.prosecdef or p.provolatile <> 'v' or p.proname = 'apply_own')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
end $$;

-- A viewer may look at the views, without what tasks carry and say: payloads, results, messages, stacks and idempotency
-- keys may hold secrets, and are the workers' and operators'.
create or replace function redrive.grant_viewer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_view record;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  for v_view in
    select c.oid::regclass as name, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'v' and a.attnum > 0
      and a.attname not in ('payload', 'result', 'progress', 'error_message', 'error_stack', 'before', 'after',
        'idempotency_key')
    group by c.oid
  loop
    execute format('grant select (%s) on %s to %I', v_view.columns, v_view.name, p_role);
  end loop;
end $$;

-- Up to here written by ./dev docs.

alter table redrive.task drop column deaths, drop column apart;
alter table redrive.worker
  drop column beats_ms, drop column beating_since, drop column dead_at, drop column stalled_ms, drop column drain_at,
  drop column drain_by, drop column drain_reason;
