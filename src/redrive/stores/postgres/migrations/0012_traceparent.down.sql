-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

-- functions/enqueue.sql

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
  v_chosen := array(select u.id from unnest(p_ids) u(id) where u.id not between v_from and v_to);
  if cardinality(v_chosen) > 0 then perform redrive.refuse_finished(v_chosen); end if;
end $$;

-- One task, with named arguments:
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', queue => 'mail', idempotency_key => 'order-17');
-- "trace_id" takes the id of a trace, or a whole W3C traceparent: then each attempt's span knows who enqueued it.
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
  v_parent pg_catalog.text;
begin
  if exists (select 1 from redrive.reserved_kind r where pg_catalog.starts_with(kind, r.begins)) then
    perform redrive.refuse_reserved(array[kind]);
  end if;
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

-- functions/grants.sql

-- Who may do what. Nothing is open to everyone, and no role but the owner writes to tables by hand: workers change tasks
-- through functions that run with the owner's rights and keep totals, dead letters and audit right. Run as the owner:
--   select redrive.grant_producer('web'), redrive.grant_worker('worker'), redrive.grant_viewer('analyst');

-- A producer may enqueue, and call what features made for producers, and nothing else. Such a function says so in its
-- comment, which only its owner can write: comment on function redrive.publish(…) is 'For producers: …'.
create or replace function redrive.grant_producer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant select on redrive.migration to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, '
    'interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean) to %I', p_role);
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and starts_with(obj_description(p.oid, 'pg_proc'), 'For producers:')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
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
      and a.attname not in ('payload', 'result', 'progress', 'error', 'error_message', 'error_stack', 'before',
        'after', 'idempotency_key')
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

-- Up to here written by ./dev docs.
drop function redrive.enqueue(text, jsonb, redrive.traceparent, integer, integer, interval, timestamptz, interval, text, text, text, text, uuid);
drop domain redrive.traceparent;
