-- Enqueueing: callable from any driver, ORM, trigger or language, inside the caller's own transaction.
-- security definer: a producer needs EXECUTE on redrive.enqueue and nothing else.

-- A hint to the workers of a queue, at most one per transaction: each queue has a channel of its own, so that others sleep
-- on. The first position a transaction takes is its smallest.
-- Names are qualified instead of setting a search_path, which would cost as much as the rest. Types as well: a caller's
-- own "text" would be run with the rights of the functions that call this one.
create function redrive.wake(p_queue text, p_position bigint) returns void
language plpgsql as $$
declare
  v_woken constant pg_catalog.text := pg_catalog.current_setting('redrive.woken', true);
  v_mark constant pg_catalog.text := pg_catalog.concat('|', p_queue, '|');
begin
  if pg_catalog.strpos(v_woken, v_mark) operator(pg_catalog.>) 0 then return; end if;
  perform pg_catalog.set_config('redrive.woken', pg_catalog.concat(v_woken, v_mark), true);
  perform pg_catalog.pg_notify(pg_catalog.concat('redrive_', pg_catalog.md5(p_queue)),
    pg_catalog.concat('ready ', p_queue, ' ', p_position));
end $$;

-- Workers look at the clock at least every few seconds; only what is due sooner needs a hint, to the queue's own workers.
create function redrive.wake_due(p_queue text, p_at timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_ms constant bigint := ceil(extract(epoch from p_at - clock_timestamp()) * 1000);
begin
  if v_ms < 5000 then
    perform pg_notify('redrive_' || md5(p_queue), 'due ' || greatest(v_ms, 0) || ' ' || p_queue);
  end if;
end $$;

-- Without a repetition count, which makes a regular expression twenty times slower.
create function redrive.check_name(p_what text, p_name text) returns void
language plpgsql immutable as $$
begin
  if pg_catalog.octet_length(p_name) operator(pg_catalog.<=) 120
    and p_name operator(pg_catalog.~) '^[A-Za-z0-9_][A-Za-z0-9_.:-]*$' then return; end if;
  raise exception '% % is not a valid name', p_what, coalesce(pg_catalog.quote_literal(pg_catalog.left(p_name, 200)), 'null') using
    errcode = 'invalid_parameter_value',
    hint = 'use 1-120 letters, digits, ''_'', ''-'', ''.'' or '':'', starting with a letter, digit or ''_''';
end $$;

-- A free label: no control characters, line separators, or characters that turn the direction of the text around them.
create function redrive.check_label(p_what text, p_value text) returns void
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
create function redrive.check_numbers(p_max_attempts integer[], p_delays double precision[], p_run_ats timestamptz[],
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
create function redrive.milliseconds(p_time interval) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_time is not null then least(greatest(extract(epoch from p_time) * 1000, -1), 2147483647)::integer end
$$;

-- What a key stands for. The separator keeps kind "A" with payload "12" apart from kind "A1" with payload "2".
create function redrive.digest(p_kind text, p_payload jsonb) returns bytea
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select sha256(convert_to(p_kind || chr(31) || coalesce(p_payload::text, ''), 'UTF8'))
$$;

-- Many tasks, as columns; a null array means the default for all, and one kind, queue, priority or max_attempts is
-- everybody's. Answers only the rows that were not created because their key already names a task. p_again: the same
-- ids may have landed before. For the fleet's own use: producers call "enqueue".
create function redrive.add(
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
    insert into redrive.idempotency_key as ik (key, task_id, digest, created_at)
    select distinct on (x.key) x.key, x.id, redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload), v_now
    from unnest(p_ids, p_kinds, p_payloads, p_keys) with ordinality x(id, kind, payload, key, ord)
    where x.key is not null order by x.key, x.ord
    on conflict do nothing;
    -- A new statement sees what concurrent callers committed while we waited for their keys.
    return query
    select x.id, ik.task_id, ik.digest <> redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload)
    from unnest(p_ids, p_kinds, p_payloads, p_keys) x(id, kind, payload, key)
    join redrive.idempotency_key ik on ik.key = x.key and ik.task_id <> x.id;
    v_skip := array(
      select x.id from unnest(p_ids, p_keys) x(id, key)
      join redrive.idempotency_key ik on ik.key = x.key and ik.task_id <> x.id);
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

-- Joins have more members: one for each time that they are named.
create function redrive.add_members(p_joins uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
  v_n bigint;
begin
  for v_id, v_n in select u.id, count(*) from unnest(p_joins) u(id) group by u.id order by u.id loop
    update redrive.task_join j set total = j.total + v_n where j.id = v_id and j.ended_at is null;
    if not found then
      raise exception 'join % takes no members: it has ended, or there is none', v_id using
        errcode = 'invalid_parameter_value',
        hint = 'a task adds members to its own join before it ends; open a new one otherwise';
    end if;
  end loop;
end $$;

-- The lowest id that can be made so many seconds from now, as the client library makes them. Qualified, not with a
-- search_path: it is on the hot path.
create function redrive.id_from(p_seconds double precision) returns uuid
language sql volatile as $$
  select (pg_catalog.lpad(pg_catalog.to_hex(((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
    operator(pg_catalog.+) p_seconds) operator(pg_catalog.*) 1000)::pg_catalog.int8), 12, '0')
    operator(pg_catalog.||) '00000000000000000000')::pg_catalog.uuid
$$;

-- A caller's own id names one task for ever: one that has finished does not begin again. Asked after the insert, which
-- waits for whoever moves the task to the history at this moment; and only for ids that are not of these ten minutes,
-- because it looks into every day of the history.
create function redrive.refuse_finished(p_ids uuid[]) returns void
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

-- The same for producers. Keys of schedules are the fleet's: whoever took one would silence a planned run.
create function redrive.enqueue(
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

-- An id like the client library's: version 7, so that rows and their index entries arrive in order.
-- PL/pgSQL, which keeps its plan: in SQL it would cost as much as the insert.
create function redrive.new_id() returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return encode(
    set_byte(
      overlay(uuid_send(gen_random_uuid())
        placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112),
    'hex')::uuid;
end $$;

-- One task with a key, a time or a timeout.
create function redrive.enqueue_with_options(
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

-- One task, with named arguments:
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', queue => 'mail', idempotency_key => 'order-17');
-- Answers the task's id: the existing task's when the key is known. A known key with other work raises.
-- Names, types too, are qualified instead of setting a search_path, which would cost a tenth of the call.
create function redrive.enqueue(
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
