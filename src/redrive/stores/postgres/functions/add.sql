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
  v_max_attempts integer;
  v_lanes constant boolean := exists (select 1 from redrive.kind);
  -- There are whole contexts among the traces: a trace is found by its id alone.
  v_contexts constant boolean := exists (select 1 from unnest(p_traces) u(v) where redrive.trace_parent(u.v) is not null);
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
  if p_max_attempts is null or exists (select 1 from unnest(p_max_attempts) m where m < 0 or m is null) then
    p_max_attempts := array(
      select redrive.attempts_of(coalesce(u.kind, p_kinds[1]),
        case when cardinality(p_max_attempts) = 1 then p_max_attempts[1] else u.given end)
      from unnest(p_ids, p_kinds, p_max_attempts) with ordinality u(id, kind, given, nth) order by u.nth);
  end if;
  v_max_attempts := case when cardinality(p_max_attempts) = 1 then p_max_attempts[1] end;
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
      insert into redrive.idempotency_key as ik (key, task_id, digest, created_at, queue)
      select distinct on (x.key) x.key, x.id, redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload), v_now,
        coalesce(x.queue, p_queues[1])
      from unnest(p_ids, p_kinds, p_queues, p_payloads, p_keys) with ordinality x(id, kind, queue, payload, key, ord)
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
      or coalesce(ik.queue <> coalesce(x.queue, p_queues[1]), false)
    from unnest(p_ids, p_kinds, p_queues, p_payloads, p_keys) x(id, kind, queue, payload, key)
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
      kind, queue, lane, task_group, scope, trace_id, idempotency_key, payload, feature, facts, join_id, trace_parent)
    select x.id, v_now, case when x.due > v_now then 0 else nextval('redrive.position') end, x.due,
      case when x.due > v_now then x.due end,
      case when x.due > v_now then 'delayed' else 'queued' end::redrive.state, coalesce(x.max_attempts, v_max_attempts, 5),
      x.timeout_ms, coalesce(x.priority, v_priority, 0), x.kind, coalesce(x.queue, p_queues[1]),
      case when v_lanes then coalesce((select k.kind from redrive.kind k where k.kind = x.kind), '') else '' end,
      x.task_group, x.scope, case when v_contexts then redrive.trace_id(x.trace_id) else x.trace_id end, x.key, x.payload, x.feature,
      x.facts, x.join_id, case when v_contexts then redrive.trace_parent(x.trace_id) end
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
