-- Roles keep their rights over an upgrade: what is new is granted to those who had the rest.

-- Workers beat apart from what they run, and those that fall silent are told from those that only rest.

alter table redrive.worker
  add column beats_ms      integer,                -- how often it beats, apart from its loop; null: only with its ticks
  add column beating_since timestamptz,            -- no beat of its own has come late since then
  add column dead_at       timestamptz,            -- when others declared it dead; its next beat takes that back
  add column stalled_ms    integer not null default 0, -- how long its event loop had not answered when it beat last
  add column drain_at      timestamptz,            -- when somebody asked it to end
  add column drain_by      text,
  add column drain_reason  text;
alter table redrive.task
  add column deaths smallint not null default 0,   -- workers that were lost while they had it
  add column apart  boolean not null default false; -- its worker has not begun it yet: it waits to be alone

-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

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
    (select array_agg(n.join_id) from new n where p_joins is not null and n.join_id is not null)
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
      seen bigint, keep double precision, quiet boolean, if_cancel_requested redrive.state, if_early redrive.state, death boolean)
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
      -- A worker that was lost uses up no attempt of what it had: another one is allowed in its place.
      deaths = case when ok.event = 'redrive' then 0 when ok.death then t.deaths + 1 else t.deaths end,
      apart = false,
      max_attempts = case when ok.event = 'redrive' then greatest(t.max_attempts - t.deaths, 1)
        when ok.death then least(t.max_attempts + 1, 1000000) else t.max_attempts end,
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
      beat_ms = excluded.beat_ms,
      -- Whether it beats apart from its ticks, its first beat will say.
      beats_ms = null, beating_since = null, dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
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

-- functions/beat.sql

-- A worker's own beat, which comes apart from its ticks and from what it runs. "silent_in": seconds until somebody else will
-- have been silent for so long that he is to be judged; null while all are heard of. "declared": it had been declared dead.
-- "drain": somebody has asked it to end. p_age: seconds since this process became a worker, so that whatever was claimed
-- under its name before then is another process's.
create or replace function redrive.beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_age double precision, p_tick_ms integer, p_beats_ms integer, p_stalled_ms integer, p_dead_after_ms integer, p_lease_ms integer,
  out silent_in double precision, out declared boolean, out drain boolean
) language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_started constant timestamptz := v_now - make_interval(secs => p_age);
  v_row redrive.worker;
begin
  select w.* into v_row from redrive.worker w where w.id = p_worker for no key update;
  if found and v_row.host = p_host and v_row.pid = p_pid then
    declared := v_row.dead_at is not null;
    update redrive.worker w set seen_at = v_now, running = p_running, started_at = least(w.started_at, v_started),
      beats_ms = p_beats_ms, stalled_ms = p_stalled_ms, dead_at = null,
      -- Two beats late, it may have been cut off, and others with it: it cannot tell who was silent.
      beating_since = case when w.beats_ms is null or w.beating_since > v_now
        or w.seen_at < v_now - make_interval(secs => 2 * p_beats_ms / 1000.0) then v_now else w.beating_since end
    where w.id = p_worker;
    drain := v_row.drain_at is not null;
  else
    insert into redrive.worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms,
      beats_ms, beating_since, stalled_ms)
    values (p_worker, p_host, p_pid, p_queues, p_concurrency, p_running, p_version, v_started, v_now, false, p_tick_ms,
      p_beats_ms, v_now, p_stalled_ms)
    -- Another process under the same name.
    on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues,
      concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
      started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
      beat_ms = excluded.beat_ms, beats_ms = excluded.beats_ms, beating_since = excluded.beating_since,
      stalled_ms = excluded.stalled_ms, dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
    declared := false;
    drain := false;
  end if;
  silent_in := (
    select min(extract(epoch from f.silent_at - v_now)) from redrive.fleet(p_dead_after_ms, p_lease_ms, v_now) f
    where f.id <> p_worker and f.silent_at <= v_now + make_interval(secs => p_beats_ms / 1000.0));
  -- What another process had under this name, which is silent if nobody has taken the name back for so long.
  if p_age <= (p_dead_after_ms + p_lease_ms) / 1000.0 and redrive.left_behind(p_worker, v_now) then
    silent_in := least(silent_in, greatest(p_dead_after_ms, 3 * p_beats_ms) / 1000.0 - (
      select extract(epoch from v_now - greatest(w.started_at, w.beating_since)) from redrive.worker w where w.id = p_worker));
  end if;
end $$;

-- Who counts when it is judged who is silent, and from when on each of them would be: those that beat apart from their loop
-- and were not declared dead, but for those that have said goodbye. What somebody had who was last seen longer ago than a
-- lease lasts is free already.
create or replace function redrive.fleet(p_dead_after_ms integer, p_lease_ms integer, p_now timestamptz)
returns table (id text, silent_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select w.id, w.seen_at + make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0) from redrive.worker w
  where w.beats_ms is not null and w.dead_at is null and not (w.stopping and w.running = 0)
    and w.seen_at > p_now - make_interval(secs => (p_dead_after_ms + p_lease_ms) / 1000.0)
$$;

-- Whether something runs that was claimed under this name before the process that has it now became a worker.
create or replace function redrive.left_behind(p_worker text, p_now timestamptz) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off as $$
  select exists (
    select 1 from redrive.task t
    where t.state = 'running' and t.lease_expires_at > p_now and t.worker_id = p_worker
      and t.last_attempt_at < (select w.started_at from redrive.worker w where w.id = p_worker))
$$;

-- Ends the leases of workers that are silent, and returns how many each of them had; recovery does the rest, fenced by their
-- tokens, and a renewal that comes before it keeps its lease. Nobody is declared dead while the judge has not itself beaten
-- without a gap for as long as that takes, nor while most are silent at once: then it is the network, and leases decide.
create or replace function redrive.judge(p_worker text, p_dead_after_ms integer, p_lease_ms integer)
returns table (worker text, tasks integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_since constant timestamptz := v_now - make_interval(secs => p_dead_after_ms / 1000.0);
  v_count integer;
  v_silent text[];
  v_started timestamptz;
begin
  if not exists (
    select 1 from redrive.worker w where w.id = p_worker and w.beats_ms is not null and w.beating_since <= v_since
      and w.seen_at > v_now - make_interval(secs => 2 * w.beats_ms / 1000.0))
  then return; end if;
  select count(*), coalesce(array_agg(f.id) filter (where f.silent_at <= v_now), '{}') into v_count, v_silent
  from redrive.fleet(p_dead_after_ms, p_lease_ms, v_now) f;
  if 2 * cardinality(v_silent) <= v_count then
    for worker in select w.id from redrive.worker w where w.id = any (v_silent) order by w.id for update skip locked loop
      tasks := redrive.end_leases(worker, 'infinity', v_now);
      -- What is left is in the hands of a transaction that may never end: it is looked at again.
      if not exists (
        select 1 from redrive.task t where t.state = 'running' and t.lease_expires_at > v_now and t.worker_id = worker)
      then update redrive.worker w set dead_at = v_now where w.id = worker; end if;
      return next;
    end loop;
  end if;
  -- What another process had under a name that has been taken over since: that one would have taken it back by now.
  for worker, v_started in
    select w.id, w.started_at from redrive.worker w
    where w.id = p_worker and w.started_at <= v_now - make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0)
  loop
    tasks := redrive.end_leases(worker, v_started, v_now);
    if tasks > 0 then return next; end if;
  end loop;
end $$;

-- Ends the leases that a worker has had since before p_before. What somebody is at just now is his to settle.
create or replace function redrive.end_leases(p_worker text, p_before timestamptz, p_now timestamptz) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_count integer;
begin
  update redrive.task t set lease_expires_at = p_now
  where t.id = any (array(
    select r.id from redrive.task r
    where r.state = 'running' and r.lease_expires_at > p_now and r.worker_id = p_worker and r.last_attempt_at < p_before
    order by r.id for no key update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Ends the leases of a worker whose process is known to be gone: whoever started it has seen it end. Returns how many.
create or replace function redrive.bury(p_worker text, p_host text, p_pid integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  update redrive.worker w set dead_at = v_now where w.id = p_worker and w.host = p_host and w.pid = p_pid;
  if not found then return 0; end if;
  return redrive.end_leases(p_worker, 'infinity', v_now);
end $$;

-- Notes of tasks under these leases that their worker has not begun them and has them wait, or that it begins them now: if it
-- dies meanwhile, that is none of their doing.
create or replace function redrive.set_apart(p_ids uuid[], p_tokens uuid[], p_apart boolean) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update redrive.task t set apart = p_apart from unnest(p_ids, p_tokens) u(i, k) where t.id = u.i and t.lease_token = u.k
$$;

-- Asks a worker to end; it hears of it with its next beat. False if there is none of this name, or it was asked before.
create or replace function redrive.drain(p_worker text, p_actor text, p_reason text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update redrive.worker w set drain_at = clock_timestamp(), drain_by = p_actor, drain_reason = p_reason
  where w.id = p_worker and w.drain_at is null and w.beats_ms is not null;
  if not found then return false; end if;
  insert into redrive.audit (at, actor, action, reason, target, before, after)
  values (clock_timestamp(), p_actor, 'WORKER_DRAIN', p_reason, 'worker:' || p_worker, '{"draining": false}', '{"draining": true}');
  return true;
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

-- The same, with the workers that were lost while they had the task; null where whoever had it is no worker that beats: then
-- nobody knows whether it died. "apart": it had not begun the task.
create or replace function redrive.expired_leases(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision, deaths integer, apart boolean)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision,
    case when exists (select 1 from redrive.worker w where w.id = t.worker_id and w.beats_ms is not null) then t.deaths end, t.apart
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

-- Gives what a step or a feature added to everyone who had the rest: a deploy migrates before its workers know of it, and
-- those that run must not be refused what is new. Returns how many roles it looked after.
create or replace function redrive.grant_again() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_role record;
  v_count integer := 0;
begin
  for v_role in
    with given as (
      select a.grantee, p.proname::text as what from pg_proc p, aclexplode(p.proacl) a
      where p.pronamespace = 'redrive'::regnamespace and p.proname in ('cycle', 'enqueue') and a.grantee not in (0, p.proowner)
      union
      select a.grantee, 'view' from pg_attribute c, aclexplode(c.attacl) a
      where c.attrelid = 'redrive.v_tasks'::regclass and c.attname = 'state'
    )
    select r.rolname as name, bool_or(g.what = 'cycle') as worker, bool_or(g.what = 'enqueue') as producer,
      bool_or(g.what = 'view') as viewer
    from given g join pg_roles r on r.oid = g.grantee group by r.rolname
  loop
    if v_role.worker then perform redrive.grant_worker(v_role.name);
    elsif v_role.producer then perform redrive.grant_producer(v_role.name); end if;
    if v_role.viewer then perform redrive.grant_viewer(v_role.name); end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
