-- Enqueueing: callable from any driver, ORM, trigger or language, inside the caller's own transaction.
-- security definer: a producer needs EXECUTE on redrive.enqueue and nothing else.

-- Kinds that features keep to themselves are refused to producers: whoever could enqueue one could have money settled, or a text
-- signed. The table has a few rows, one for each beginning of a kind; features write theirs with their steps.
create or replace function redrive.refuse_reserved(p_kinds text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_found record;
begin
  select u.kind, r.feature into v_found from redrive.reserved_kind r join unnest(p_kinds) u(kind) on starts_with(u.kind, r.begins) limit 1;
  if found then
    raise exception 'the kind % is kept for the feature %, which enqueues it itself', left(v_found.kind, 80), v_found.feature using
      errcode = 'invalid_parameter_value', hint = 'call what the feature offers, or give your kind another name';
  end if;
end $$;

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
  if exists (select 1 from unnest(p_keys) k where starts_with(k, 'redrive:')) then
    raise exception 'an idempotency key must not begin with "redrive:"' using
      errcode = 'invalid_parameter_value', hint = 'those keys are kept for tasks of features';
  end if;
  perform redrive.refuse_reserved(p_kinds);
  return query select a.id, a.existing, a.conflict from redrive.add(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
    p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_again) a;
  -- Of tasks that are new: who repeats a key makes none.
  perform redrive.admit_name(n.queue, n.kind) from (
    select distinct coalesce(u.queue, p_queues[1]) as queue, coalesce(u.kind, p_kinds[1]) as kind
    from unnest(p_ids, p_kinds, p_queues, p_keys) u(id, kind, queue, key)
    where u.key is null or exists (select 1 from redrive.idempotency_key k where k.key = u.key and k.task_id = u.id)) n
  where not exists (select 1 from redrive.used_name x where x.queue = n.queue and x.kind = n.kind);
  v_chosen := array(select u.id from unnest(p_ids) u(id) where u.id not between v_from and v_to);
  if cardinality(v_chosen) > 0 then perform redrive.refuse_finished(v_chosen); end if;
end $$;

-- The same for an application that declares the kinds and queues of some of them (p_declared; null: of all), although no worker may have
-- announced them yet.
create or replace function redrive.enqueue_declared(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false, p_declared boolean[] default null
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform redrive.refuse_reserved(p_kinds);
  perform redrive.check_name('queue', n.queue), redrive.check_name('kind', n.kind), redrive.declare_name(n.queue, n.kind) from (
    select distinct coalesce(u.queue, p_queues[1]) as queue, coalesce(u.kind, p_kinds[1]) as kind
    from unnest(p_ids, p_kinds, p_queues, p_declared) u(id, kind, queue, declared) where p_declared is null or u.declared) n
  where not exists (select 1 from redrive.used_name x where x.queue = n.queue and x.kind = n.kind);
  return query select e.id, e.existing, e.conflict from redrive.enqueue(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
    p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_again) e;
end $$;

-- One task, with named arguments:
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', queue => 'mail', idempotency_key => 'order-17');
-- "trace_id" takes the id of a trace, or a whole W3C traceparent: then each attempt's span knows who enqueued it.
-- Answers the task's id: the existing task's when the key is known. A known key with other work raises.
-- "max_attempts => null": as often as the application says that handles the kind.
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
  v_parent pg_catalog.text;
begin
  -- One statement: names that are in use were checked when they were new.
  if exists (select 1 from redrive.reserved_kind r where pg_catalog.starts_with(kind, r.begins)) or not exists (
    select 1 from redrive.used_name n
    where n.queue operator(pg_catalog.=) coalesce(enqueue.queue, 'default') and n.kind operator(pg_catalog.=) enqueue.kind
  ) then
    perform redrive.refuse_reserved(array[kind]), redrive.check_name('kind', kind), redrive.check_name('queue', coalesce(queue, 'default'));
    -- Of a task with a key it is known later whether it is new.
    if idempotency_key is null then perform redrive.admit_name(coalesce(queue, 'default'), kind); end if;
  end if;
  -- Null is the default, for callers that always pass every argument.
  if queue is null or priority is null then
    queue := coalesce(queue, 'default'); priority := coalesce(priority, 0);
  end if;
  if max_attempts is null or max_attempts operator(pg_catalog.<) 0 then
    max_attempts := redrive.attempts_of(kind, max_attempts);
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
  if task_group is not null then perform redrive.check_label('group', task_group); end if;
  if scope is not null then perform redrive.check_label('scope', scope); end if;
  if trace_id is not null then
    perform redrive.check_label('trace_id', trace_id);
    v_parent := redrive.trace_parent(trace_id);
    if v_parent is not null then trace_id := redrive.trace_id(trace_id); end if;
  end if;
  v_position := pg_catalog.nextval('redrive.position');
  insert into redrive.task (id, created_at, position, state, max_attempts, priority, kind, queue, lane, task_group, scope,
    trace_id, payload, trace_parent)
  values (v_id, pg_catalog.clock_timestamp(), v_position, 'queued', max_attempts, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind operator(pg_catalog.=) enqueue.kind), ''), task_group, scope,
    trace_id, payload, v_parent);
  insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
  if id operator(pg_catalog.<) redrive.id_from(-600) or id operator(pg_catalog.>) redrive.id_from(600) then
    perform redrive.refuse_finished(array[id]);
  end if;
  perform redrive.wake(queue, v_position);
  return v_id;
end $$;

-- The same for a caller that has a W3C traceparent, by name: each attempt's span then is a child of the caller's.
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', traceparent => '00-4bf9…-00f0…-01', queue => 'mail');
-- One that is malformed is ignored, as the standard asks. A form of its own, not one more argument with a default: that would
-- make calls of fourteen untyped parameters, as drivers send them for many tasks, ambiguous. Whoever does not name "traceparent" never
-- gets here: of two texts in the third place PostgreSQL prefers "text" to a domain, and all other places have the types of the form above.
create or replace function redrive.enqueue(
  kind text, payload jsonb, traceparent redrive.traceparent, priority integer default 0,
  max_attempts integer default 5, delay interval default null, run_at timestamptz default null,
  timeout interval default null, task_group text default null, scope text default null, queue text default 'default',
  idempotency_key text default null, id uuid default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return redrive.enqueue(kind, payload, queue, priority, max_attempts, delay, run_at, timeout, task_group, scope,
    case when char_length(traceparent) <= 512 and traceparent ~ '^[ -~]*$' then redrive.trace_parent(traceparent) end,
    idempotency_key, id);
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
      raise exception 'idempotency key % already belongs to task %, which has another kind, queue or payload',
        quote_literal(idempotency_key), v_existing.existing using errcode = 'unique_violation';
    end if;
    return coalesce(v_existing.existing, id);
  end if;
  v_waits := coalesce(v_due > v_now, false);
  if not v_waits then v_position := nextval('redrive.position'); end if;
  insert into redrive.task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
    kind, queue, lane, task_group, scope, trace_id, payload, trace_parent)
  values (id, v_now, v_position, v_due, case when v_waits then v_due end,
    case when v_waits then 'delayed' else 'queued' end::redrive.state, max_attempts,
    v_timeout_ms, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind = enqueue_with_options.kind), ''), task_group, scope,
    redrive.trace_id(trace_id), payload, redrive.trace_parent(trace_id));
  if v_waits then
    insert into redrive.total_delta (queue, kind, delayed) values (queue, kind, 1);
    perform redrive.wake_due(queue, v_due);
  else
    insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
    perform redrive.wake(queue, v_position);
  end if;
  return id;
end $$;
