-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_catalog.pg_proc p where p.pronamespace = 'redrive'::regnamespace and p.proname = any (array[
      'trace_parent',
      'trace_id'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;

-- functions/checks.sql

-- Without a repetition count, which makes a regular expression twenty times slower.
create or replace function redrive.check_name(p_what text, p_name text) returns void
language plpgsql immutable as $$
begin
  if pg_catalog.octet_length(p_name) operator(pg_catalog.<=) 120
    and p_name operator(pg_catalog.~) '^[A-Za-z0-9_][A-Za-z0-9_.:-]*$' then return; end if;
  raise exception '% % is not a valid name', p_what, coalesce(pg_catalog.quote_literal(pg_catalog.left(p_name, 200)), 'null') using
    errcode = 'invalid_parameter_value',
    hint = 'use 1-120 letters, digits, ''_'', ''-'', ''.'' or '':'', starting with a letter, digit or ''_''';
end $$;

-- A free label: no control characters, line separators, or characters that turn the direction of the text around them.
create or replace function redrive.check_label(p_what text, p_value text) returns void
language plpgsql immutable as $$
begin
  if p_value is null or pg_catalog.char_length(p_value) operator(pg_catalog.>) 0
    and pg_catalog.char_length(p_value) operator(pg_catalog.<=) 512
    and pg_catalog.octet_length(p_value) operator(pg_catalog.<=) 1536
    and p_value operator(pg_catalog.!~) '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]' then
    return;
  end if;
  raise exception '% must be text of 1-512 characters (at most 1,536 bytes) without control characters, not %', p_what,
    pg_catalog.quote_literal(pg_catalog.left(p_value, 80)) using
    errcode = 'invalid_parameter_value', hint = 'use a shorter label, without line breaks';
end $$;

-- The same rules for both forms: what gets in must be something that a worker can claim and an operator can list.
create or replace function redrive.check_numbers(p_max_attempts integer[], p_delays double precision[], p_run_ats timestamptz[],
  p_timeouts_ms integer[], p_priorities integer[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_problem text;
begin
  v_problem := case
    when exists (select 1 from unnest(p_max_attempts) n where n not between 1 and 1000000) then
      'max_attempts must be at least 1, and at most 1,000,000'
    when exists (select 1 from unnest(p_delays) d where not d between 0 and 316224000) then
      'delay must be from 0 to 10 years'
    when exists (select 1 from unnest(p_run_ats) r
      where r > clock_timestamp() + interval '3660 days' or r < '1970-01-01+00') then
      'run_at must be after 1970 and at most 10 years ahead'
    when exists (select 1 from unnest(p_timeouts_ms) t where t not between 1 and 2000000000) then
      'timeout must be from 1 ms to 2,000,000 s'
    when exists (select 1 from unnest(p_priorities) p where p not between -32768 and 32767) then
      'priority must be from -32,768 to 32,767'
  end;
  if v_problem is not null then
    raise exception '%', v_problem using errcode = 'invalid_parameter_value';
  end if;
end $$;

-- A timeout in milliseconds; what no number can hold becomes one that is refused.
create or replace function redrive.milliseconds(p_time interval) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_time is not null then least(greatest(extract(epoch from p_time) * 1000, -1), 2147483647)::integer end
$$;

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

-- functions/enqueue.sql

-- Enqueueing: callable from any driver, ORM, trigger or language, inside the caller's own transaction.
-- security definer: a producer needs EXECUTE on redrive.enqueue and nothing else.

-- Many tasks, as columns: redrive.add for producers. Keys of schedules are the fleet's: whoever took one would silence a planned run.
create or replace function redrive.enqueue(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_chosen uuid[];
  v_from constant uuid := redrive.id_from(-600);
  v_to constant uuid := redrive.id_from(600);
begin
  if exists (select 1 from unnest(p_keys) k where starts_with(k, 'schedule:')) then
    raise exception 'an idempotency key must not begin with "schedule:"' using
      errcode = 'invalid_parameter_value', hint = 'those keys are reserved for the runs of schedules';
  end if;
  return query select a.id, a.existing, a.conflict from redrive.add(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
    p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_again) a;
  v_chosen := array(select u.id from unnest(p_ids) u(id) where u.id not between v_from and v_to);
  if cardinality(v_chosen) > 0 then perform redrive.refuse_finished(v_chosen); end if;
end $$;

-- One task, with named arguments:
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', queue => 'mail', idempotency_key => 'order-17');
-- Answers the task's id: the existing task's when the key is known. A known key with other work raises.
-- Names, types too, are qualified instead of setting a search_path, which would cost a tenth of the call.
create or replace function redrive.enqueue(
  kind text, payload jsonb default null, queue text default 'default', priority integer default 0,
  max_attempts integer default 5, delay interval default null, run_at timestamptz default null,
  timeout interval default null, task_group text default null, scope text default null, trace_id text default null,
  idempotency_key text default null, id uuid default null
) returns uuid
language plpgsql security definer as $$
#variable_conflict use_variable
declare
  v_id pg_catalog.uuid := coalesce(id, redrive.new_id());
  v_position pg_catalog.int8;
begin
  -- Null is the default, for callers that always pass every argument.
  if queue is null or priority is null or max_attempts is null then
    queue := coalesce(queue, 'default'); priority := coalesce(priority, 0); max_attempts := coalesce(max_attempts, 5);
  end if;
  if pg_catalog.num_nonnulls(delay, run_at, timeout, idempotency_key) operator(pg_catalog.>) 0
    or max_attempts operator(pg_catalog.<) 1 or max_attempts operator(pg_catalog.>) 1000000
    or priority operator(pg_catalog.<) -32768 or priority operator(pg_catalog.>) 32767 then
    v_id := redrive.enqueue_with_options(kind, payload, queue, priority, max_attempts, delay, run_at, timeout, task_group, scope,
      trace_id, idempotency_key, v_id);
    if id operator(pg_catalog.<) redrive.id_from(-600) or id operator(pg_catalog.>) redrive.id_from(600) then
      perform redrive.refuse_finished(array[id]);
    end if;
    return v_id;
  end if;
  perform redrive.check_name('kind', kind), redrive.check_name('queue', queue);
  if task_group is not null then perform redrive.check_label('group', task_group); end if;
  if scope is not null then perform redrive.check_label('scope', scope); end if;
  if trace_id is not null then perform redrive.check_label('trace_id', trace_id); end if;
  v_position := pg_catalog.nextval('redrive.position');
  insert into redrive.task (id, created_at, position, state, max_attempts, priority, kind, queue, lane, task_group, scope,
    trace_id, payload)
  values (v_id, pg_catalog.clock_timestamp(), v_position, 'queued', max_attempts, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind operator(pg_catalog.=) enqueue.kind), ''), task_group, scope,
    trace_id, payload);
  insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
  if id operator(pg_catalog.<) redrive.id_from(-600) or id operator(pg_catalog.>) redrive.id_from(600) then
    perform redrive.refuse_finished(array[id]);
  end if;
  perform redrive.wake(queue, v_position);
  return v_id;
end $$;

-- One task with a key, a time or a timeout.
create or replace function redrive.enqueue_with_options(
  kind text, payload jsonb, queue text, priority integer, max_attempts integer, delay interval, run_at timestamptz,
  timeout interval, task_group text, scope text, trace_id text, idempotency_key text, id uuid
) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_now constant timestamptz := clock_timestamp();
  v_timeout_ms constant integer := redrive.milliseconds(timeout);
  v_due timestamptz;
  v_waits boolean;
  v_position bigint := 0;
  v_existing record;
begin
  perform redrive.check_name('kind', kind), redrive.check_name('queue', queue);
  perform redrive.check_label('group', task_group), redrive.check_label('scope', scope),
    redrive.check_label('trace_id', trace_id);
  perform redrive.check_numbers(array[max_attempts], array[extract(epoch from delay)::double precision], array[run_at],
    array[v_timeout_ms], array[priority]);
  v_due := coalesce(run_at, v_now + delay);
  if idempotency_key is not null then
    select * into v_existing from redrive.enqueue(array[id], array[kind], array[queue], array[payload], array[priority],
      array[max_attempts], null, array[v_due], array[v_timeout_ms], array[task_group],
      array[scope], array[trace_id], array[idempotency_key]);
    if v_existing.conflict then
      raise exception 'idempotency key % already belongs to task %, which has another kind or payload',
        quote_literal(idempotency_key), v_existing.existing using errcode = 'unique_violation';
    end if;
    return coalesce(v_existing.existing, id);
  end if;
  v_waits := coalesce(v_due > v_now, false);
  if not v_waits then v_position := nextval('redrive.position'); end if;
  insert into redrive.task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
    kind, queue, lane, task_group, scope, trace_id, payload)
  values (id, v_now, v_position, v_due, case when v_waits then v_due end,
    case when v_waits then 'delayed' else 'queued' end::redrive.state, max_attempts,
    v_timeout_ms, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind = enqueue_with_options.kind), ''), task_group, scope, trace_id, payload);
  if v_waits then
    insert into redrive.total_delta (queue, kind, delayed) values (queue, kind, 1);
    perform redrive.wake_due(queue, v_due);
  else
    insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
    perform redrive.wake(queue, v_position);
  end if;
  return id;
end $$;

-- functions/claim.sql

-- Payloads that were written past the limit are not handed out: the claim is refused, and their rows are set aside. Called
-- for those that are large on the disk; a smaller one that is large when it is read is set aside by whoever claimed it.
create or replace function redrive.within_limit(p_value jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(p_value::text) > 1048576 then
    raise exception 'a payload is % bytes, over the limit of 1,048,576', octet_length(p_value::text) using
      errcode = 'invalid_parameter_value';
  end if;
  return p_value;
end $$;

-- Claim up to p_want ready tasks of p_queues in order. A row of nulls means: there may be more, look again at once. The p_seg_* columns say where to start in each lane and
-- priority range: entries before that were claimed long ago and may still lie in the index, dead.
create or replace function redrive.claim(
  p_worker text, p_token uuid, p_lease double precision, p_want integer, p_queues text[], p_handles text[], p_only text,
  p_wait boolean, p_seg_queue text[], p_seg_lane text[], p_seg_priority integer[], p_seg_position bigint[],
  p_seg_until integer[]
) returns setof redrive.claimed
language plpgsql as $$
declare
  v_queues text[] := p_queues;
  v_lanes text[];
  v_closed text[];
  v_groups text[];
  v_picked tid[];
  v_set_aside boolean;
  v_passed_by boolean := false;
  v_contended boolean := false;
  v_left integer := p_want;
  v_got integer;
begin
  -- Limits and holds change under the exclusive lock: from the next statement on they are seen whole.
  lock table redrive.move_lock in row share mode;
  if exists (select 1 from redrive.hold) then
    v_queues := array(
      select u.q from unnest(p_queues) with ordinality u(q, o)
      where not exists (select 1 from redrive.hold h where h.target = 'queue' and h.name = u.q) order by u.o);
    select array_agg(h.name) filter (where h.target = 'group'), array_agg(h.name) filter (where h.target = 'kind')
    into v_groups, v_closed from redrive.hold h;
  end if;

  v_lanes := array(select k.kind from redrive.kind k);
  if v_groups is null and p_handles is null and p_only is null and (v_lanes = '{}' or redrive.open_lanes(v_queues, null, null,
    v_closed, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until) = '{}') then
    -- Nothing but the open lane has anything to give: one statement.
    return query
    with picked as (
      update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = p_token,
        lease_expires_at = clock_timestamp() + make_interval(secs => p_lease), last_attempt_at = clock_timestamp(),
        worker_id = p_worker
      where t.ctid = any (array(
        select r.ctid from unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
          s(queue, lane, priority, pos, until)
        cross join lateral (
          select c.ctid from redrive.task c
          where c.state = 'queued' and c.queue = s.queue and c.lane = ''
            and (c.priority, c.position) >= (s.priority, s.pos) and c.priority <= s.until
          order by c.priority, c.position limit p_want for update skip locked
        ) r
        where s.lane = '' and s.queue = any (v_queues) limit p_want)) and t.kind <> all (v_lanes)
      returning t.*
    ), tally as (
      insert into redrive.total_delta (queue, kind, queued, running)
      select p.queue, p.kind, -count(*), count(*) from picked p group by p.queue, p.kind
    )
    select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
      p.max_attempts::integer, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
      p.trace_id::text, p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
      -- As numbers: times that are infinite cannot be subtracted.
      case when p.settled_token is null and p.attempt_count = 1 then greatest(0, least(1e9, date_part('epoch', p.last_attempt_at)
        - date_part('epoch', greatest(p.created_at, p.run_at, p.last_replayed_at)))) end
    from picked p order by array_position(v_queues, p.queue), p.priority, p.position;
    get diagnostics v_got = row_count;
    v_left := v_left - v_got;
    -- What is still there is locked by others or belongs into a lane by now: that is for the careful half.
    if v_left <= 0 or v_lanes = '{}' or not exists (
      select 1 from unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
        s(queue, lane, priority, pos, until)
      cross join lateral (
        select 1 from redrive.task c
        where c.state = 'queued' and c.queue = s.queue and c.lane = ''
          and (c.priority, c.position) >= (s.priority, s.pos) and c.priority <= s.until
        limit 1
      ) r
      where s.lane = '' and s.queue = any (v_queues)
    ) then
      return;
    end if;
  end if;

  for i in 1..5 loop
    select c.picked, c.set_aside, c.passed_by, c.contended into v_picked, v_set_aside, v_passed_by, v_contended
    from redrive.candidates(v_left, case when i = 1 then v_left else greatest(v_left, 2000) end, p_wait, v_queues, p_handles,
      p_only, v_closed, v_groups, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until) c;
    if v_picked is not null then
      return query
      with picked as (
        update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = p_token,
          lease_expires_at = clock_timestamp() + make_interval(secs => p_lease), last_attempt_at = clock_timestamp(),
          worker_id = p_worker
        where t.ctid = any (v_picked)
        returning t.*
      ), tally as (
        insert into redrive.total_delta (queue, kind, queued, running)
        select p.queue, p.kind, -count(*), count(*) from picked p group by p.queue, p.kind
      ), places as (
        update redrive.kind k set running = k.running + case when k.concurrency is null then 0 else n.n end,
          next_at = case when k.rate_ms is null then null else clock_timestamp() + k.rate_ms * interval '1 ms' end
        from (select p.kind, count(*)::integer as n from picked p group by p.kind) n
        where k.kind = n.kind and (k.concurrency is not null or k.rate_ms is not null)
      )
      select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
        p.max_attempts::integer, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
        p.trace_id::text, p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
      -- As numbers: times that are infinite cannot be subtracted.
      case when p.settled_token is null and p.attempt_count = 1 then greatest(0, least(1e9, date_part('epoch', p.last_attempt_at)
        - date_part('epoch', greatest(p.created_at, p.run_at, p.last_replayed_at)))) end
      from picked p order by array_position(v_queues, p.queue), p.priority, p.position;
      get diagnostics v_got = row_count;
      v_left := v_left - v_got;
    end if;
    -- Rows that were set aside or are locked by others may have hidden more behind them: look again, and further.
    exit when v_left <= 0 or not (v_set_aside or v_contended);
  end loop;
  if v_left > 0 and (v_set_aside or v_passed_by or v_contended) then return next null::redrive.claimed; end if;
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

-- functions/revive.sql

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
      last_replayed_reason, last_replayed_bulk_id, feature, facts, join_id)
    select o.id, o.created_at, nextval('redrive.position'), 'queued', o.max_attempts, o.timeout_ms, o.priority, o.kind,
      o.queue, coalesce((select k.kind from redrive.kind k where k.kind = o.kind), ''), o.task_group, o.scope, o.trace_id,
      o.idempotency_key, o.payload, o.replay_count + 1, v_now, x.actor, x.reason, x.bulk_id,
      o.feature, o.facts, o.join_id
    from old o join jsonb_to_recordset(p_moves) x(id uuid, actor text, reason text, bulk_id text) on x.id = o.id
    returning task.*
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, cancelled)
    select n.queue, n.kind, count(*), -count(*) from new n group by n.queue, n.kind
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

-- functions/erase.sql

-- Personal data goes: of finished tasks what they carried, of their attempts and dead letters what was said, their keys, and
-- rows of the audit log but for a digest (p_telling: and for what they tell of removals). Live tasks among p_ids are left alone. Returns how many, by place.
create or replace function redrive.erase(p_ids uuid[], p_tombstone text, p_audit bigint[], p_digests text[], p_scope text,
  p_holds jsonb, p_telling bigint[])
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_ids uuid[] := array(
    select u.id from unnest(p_ids) u(id) where not exists (select 1 from redrive.task t where t.id = u.id));
  v_keys text[] := array(
    select h.idempotency_key from redrive.history h where h.id = any (v_ids) and h.idempotency_key is not null);
  v_gone uuid[] := array(
    select u.id from unnest(v_ids) u(id) where not exists (select 1 from redrive.history h where h.id = u.id));
  v_n integer;
  v_more integer := 0;
  v_done jsonb := '{}';
begin
  update redrive.history h set payload = null, result = null, cancel_reason = null, trace_id = null, task_group = null,
    idempotency_key = null, facts = null, scope = case when h.scope is null then null else p_tombstone end,
    erased_at = clock_timestamp()
  where h.id = any (v_ids) and h.erased_at is null;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('tasks', v_n);
  update redrive.attempt a set message = 'erased', stack = null, error_summary = null
  where a.task_id = any (v_ids) and (a.message <> 'erased' or a.stack is not null or a.error_summary is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('attempts', v_n);
  update redrive.dead_letter d set payload = null, error_message = 'erased', error_summary = null, task_group = null,
    trace_id = null, scope = case when d.scope is null then null else p_tombstone end
  where d.task_id = any (v_ids) and (d.error_message <> 'erased' or d.payload is not null
    or d.error_summary is not null or d.scope is distinct from p_tombstone);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('dead_letters', v_n);
  -- A key may name another task by now.
  delete from redrive.idempotency_key k where k.key = any (v_keys) and k.task_id = any (v_ids);
  get diagnostics v_n = row_count;
  if cardinality(v_gone) > 0 then  -- there is no index of this, because keys are written with tasks
    delete from redrive.idempotency_key k where k.task_id = any (v_gone);
    get diagnostics v_more = row_count;
  end if;
  v_done := v_done || jsonb_build_object('keys', v_n + v_more);
  update redrive.failure_delta d set message = 'erased', error_summary = null, sample_scope = null
  where (d.sample_task = any (v_ids) or d.sample_scope = p_scope)
    and (d.message <> 'erased' or d.sample_scope is not null);
  get diagnostics v_more = row_count;
  update redrive.failure_group g set message = 'erased', error_summary = null, sample_scope = null
  where (g.sample_task = any (v_ids) or g.sample_scope = p_scope)
    and (g.message <> 'erased' or g.sample_scope is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('causes', v_n + v_more);
  v_n := redrive.erase_callbacks(p_scope);
  v_done := v_done || jsonb_build_object('joins', v_n);
  update redrive.hold h set reason = 'erased'
  from jsonb_array_elements(p_holds) x(hold) where h.target = x.hold ->> 0 and h.name = x.hold ->> 1;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('holds', v_n);
  update redrive.audit a set reason = null, target = null, scope = null, trace_id = null, before = null, salt = null,
    after = case when a.id = any (p_telling) then a.after end, erased = u.digest
  from unnest(p_audit, p_digests) u(id, digest) where a.id = u.id and a.erased is null;
  get diagnostics v_n = row_count;
  return v_done || jsonb_build_object('audit', v_n);
end $$;

-- What is enqueued at the end of joins, and is about this scope, goes; who waits for it does not wait for ever. Returns how many.
create or replace function redrive.erase_callbacks(p_scope text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_n integer;
  v_outer uuid[] := array(
    select (j.on_complete ->> 'join')::uuid from redrive.task_join j
    where j.on_complete ->> 'scope' = p_scope and j.on_complete ->> 'join' is not null);
begin
  update redrive.task_join j set on_complete = case when j.on_complete ->> 'scope' is distinct from p_scope then j.on_complete end,
    on_success = case when j.on_success ->> 'scope' is distinct from p_scope then j.on_success end
  where j.on_complete ->> 'scope' = p_scope or j.on_success ->> 'scope' = p_scope;
  get diagnostics v_n = row_count;
  if cardinality(v_outer) > 0 then
    perform redrive.arrive(v_outer, null, array_fill('cancelled'::redrive.state, array[cardinality(v_outer)]));
  end if;
  return v_n;
end $$;

-- functions/bad_rows.sql

-- Rows that cannot be worked with: from before a limit, or put there by hand past all checks. One such row must never stop
-- the others, so it is found, made usable and failed by itself. Nothing of this runs unless a statement over many rows was
-- refused for what is in one of them.

create or replace function redrive.cut(p_value text, p_bytes integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when octet_length(p_value) between 1 and p_bytes then p_value
    when p_value is not null then left(p_value, p_bytes / 4 - 9) || '~' || left(md5(p_value), 8) end
$$;

create or replace function redrive.usable_time(p_at timestamptz, p_else timestamptz) returns timestamptz
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_at between '0100-01-01+00' and '9900-01-01+00' then p_at when p_at is not null then p_else end
$$;

-- What every reader asks for, as text; null when that is impossible, or more than anybody can hold.
create or replace function redrive.usable_json(p_value jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return case when octet_length(p_value::text) <= 67108864 then p_value end;
exception when others then
  return null;
end $$;

-- Why a live row cannot be moved or read; null when it can. Whatever is tried is taken back.
create or replace function redrive.trial(p_id uuid) returns text
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_why text;
begin
  select case
    when (t.payload is not null and redrive.usable_json(t.payload) is null)
      or (t.memo is not null and redrive.usable_json(t.memo) is null) then 'its payload cannot be read'
    when octet_length(t.payload::text) > 1048576 then 'its payload is over the limit of 1,048,576 bytes'
    when exists (select 1 from unnest(array[t.created_at, t.run_at, t.next_attempt_at, t.last_attempt_at]) u(at)
      where u.at is not null and redrive.usable_time(u.at, null) is null) then 'one of its times is out of range' end
  into v_why from redrive.task t where t.id = p_id;
  if v_why is not null then return v_why; end if;
  begin
    -- As a promotion, a claim and a held group would have it.
    update redrive.task t set state = 'queued', lease_token = null, lane = '' where t.id = p_id;
    insert into redrive.kind (kind) select t.kind from redrive.task t where t.id = p_id on conflict do nothing;
    update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = gen_random_uuid(),
      lease_expires_at = clock_timestamp(), worker_id = '-' where t.id = p_id;
    update redrive.task t set state = 'paused', lease_token = null, paused_by = 'group:' || t.task_group where t.id = p_id;
    raise exception using errcode = 'RD000';
  exception
    when sqlstate 'RD000' then return null;
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then return sqlerrm;
  end;
end $$;

-- Rows that claims and ticks of these queues meet first, and that cannot be worked with. Rows that others have locked are
-- theirs to find.
create or replace function redrive.suspects(p_queues text[], p_limit integer) returns table (id uuid, why text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
begin
  for v_id in
    select t.id from redrive.task t where t.id = any (array(
      select r.id from unnest(p_queues) q(queue)
      cross join (select '' as lane union all select k.kind from redrive.kind k) l
      cross join lateral (
        select c.id from redrive.task c where c.state = 'queued' and c.queue = q.queue and c.lane = l.lane
        order by c.priority, c.position limit p_limit) r
      union all
      select r.id from unnest(p_queues) q(queue) cross join lateral (
        select c.id from redrive.task c
        where c.state = 'delayed' and c.queue = q.queue and c.next_attempt_at <= clock_timestamp()
        order by c.next_attempt_at limit p_limit) r
      union all
      select r.id from redrive.resuming g cross join lateral (
        select c.id from redrive.task c where c.state = 'paused' and c.task_group = g.task_group limit p_limit) r))
    for update skip locked
  loop
    why := redrive.trial(v_id);
    if why is not null then
      id := v_id;
      return next;
    end if;
  end loop;
end $$;

-- Make a row one that every statement can work with. What fits is kept; what does not is cut, and ends in "~" and a digest.
-- Returns whether its feature is among p_features, so that it may be failed; of a task that is to run still, no payload goes.
create or replace function redrive.mend(p_id uuid, p_features text[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_queue text;
  v_kind text;
  v_state redrive.state;
  v_known boolean;
begin
  lock table redrive.move_lock in row share mode;
  select t.queue::text, t.kind::text, t.state, t.feature is null or t.feature = any (p_features)
  into v_queue, v_kind, v_state, v_known from redrive.task t where t.id = p_id for update;
  if not found then return true; end if;
  update redrive.task t set
    kind = redrive.cut(t.kind, 120), queue = redrive.cut(t.queue, 120), lane = '',
    task_group = redrive.cut(t.task_group, 1536), scope = redrive.cut(t.scope, 1536),
    trace_id = redrive.cut(t.trace_id, 1536), idempotency_key = redrive.cut(t.idempotency_key, 1536),
    worker_id = redrive.cut(t.worker_id, 1536), last_replayed_bulk_id = redrive.cut(t.last_replayed_bulk_id, 1536),
    error_code = redrive.cut(t.error_code, 200), error_reason = redrive.cut(t.error_reason, 200),
    error_fingerprint = redrive.cut(t.error_fingerprint, 200),
    max_attempts = least(greatest(t.max_attempts, 1), 1000000),
    attempt_count = least(greatest(t.attempt_count, 0), least(greatest(t.max_attempts, 1), 1000000)),
    timeout_ms = case when t.timeout_ms between 1 and 2000000000 then t.timeout_ms end,
    created_at = redrive.usable_time(t.created_at, v_now), run_at = redrive.usable_time(t.run_at, v_now),
    next_attempt_at = redrive.usable_time(t.next_attempt_at, v_now),
    last_attempt_at = redrive.usable_time(t.last_attempt_at, v_now),
    lease_token = case when t.state = 'running' then coalesce(t.lease_token, gen_random_uuid()) end,
    lease_expires_at = redrive.usable_time(t.lease_expires_at, v_now),
    memo = redrive.usable_json(t.memo), progress = redrive.usable_json(t.progress)
  where t.id = p_id;
  if v_known and (select t.payload is not null and redrive.usable_json(t.payload) is null from redrive.task t where t.id = p_id) then
    update redrive.task t set payload = jsonb_build_object('unreadable', 'the payload could not be read, and was removed')
    where t.id = p_id;
  end if;
  -- Counted under its new names from here on.
  insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed)
  select x.queue, x.kind, case when v_state = 'queued' then x.n else 0 end, case when v_state = 'delayed' then x.n else 0 end,
    case when v_state = 'running' then x.n else 0 end, case when v_state = 'paused' then x.n else 0 end,
    case when v_state = 'failed' then x.n else 0 end
  from (
    select v_queue as queue, v_kind as kind, -1 as n
    union all select t.queue, t.kind, 1 from redrive.task t where t.id = p_id) x
  where exists (select 1 from redrive.task t where t.id = p_id and (t.queue, t.kind) <> (v_queue, v_kind));
  return v_known;
end $$;

-- Up to here written by ./dev docs.

alter table redrive.history drop column trace_parent;
alter table redrive.task drop column trace_parent;
