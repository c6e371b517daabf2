-- Producers in SQL say "traceparent". Its type tells the form of redrive.enqueue that takes it from the one that does not.
create domain redrive.traceparent as text;

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

-- functions/candidates.sql

-- Whether the rate of a kind lets its next task wait still. A time that is further ahead than one step (and a minute) is of a
-- clock that was wrong.
create or replace function redrive.too_soon(p_next timestamptz, p_rate_ms integer) returns boolean
language sql volatile as $$
  select p_next > pg_catalog.clock_timestamp() and p_next <= pg_catalog.clock_timestamp() + p_rate_ms * interval '1 ms' + interval '1 min'
$$;

-- Lanes with something ready and room, seen without locks: an idle worker locks nothing.
create or replace function redrive.open_lanes(
  p_queues text[], p_handles text[], p_only text, p_closed text[], p_seg_queue text[], p_seg_lane text[],
  p_seg_priority integer[], p_seg_position bigint[], p_seg_until integer[]
) returns text[] language plpgsql as $$
begin
  return array(
    select k.kind from redrive.kind k
    where (p_only is null or k.kind = p_only) and (p_handles is null or k.kind = any (p_handles))
      and (p_closed is null or k.kind <> all (p_closed))
      and (k.concurrency is null or k.running < k.concurrency)
      and (k.next_at is null or not redrive.too_soon(k.next_at, k.rate_ms))
      and (k.circuit is null or exists (
        select 1 from redrive.circuit x where x.name = k.circuit and redrive.may_probe(x.until, x.probe, x.token)))
      and exists (
        select 1 from unnest(p_queues) q(queue)
        left join unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
          s(queue, lane, priority, pos, until) on s.queue = q.queue and s.lane = k.kind
        cross join lateral (
          select 1 from redrive.task c
          where c.state = 'queued' and c.queue = q.queue and c.lane = k.kind
            and (c.priority, c.position) >= (coalesce(s.priority, -32768), coalesce(s.pos, 0))
            and c.priority <= coalesce(s.until, 32767)
          limit 1) r)
    order by k.kind);
end $$;

-- The careful half of a claim: which rows may run now, given lanes, limits and holds; locks what it answers.
-- Rows met in the open lane that belong elsewhere are set aside, each once: into their kind's lane, or into
-- "paused" when their group is held. So a limited or held backlog is never scanned past again.
create or replace function redrive.candidates(
  p_want integer, p_scan integer, p_wait boolean, p_queues text[], p_handles text[], p_only text, p_closed text[],
  p_groups text[], p_seg_queue text[], p_seg_lane text[], p_seg_priority integer[], p_seg_position bigint[],
  p_seg_until integer[], out picked tid[], out set_aside boolean, out passed_by boolean, out contended boolean
) returns record language plpgsql as $$
declare
  v_lanes text[];
  v_open text[];
  v_free text[];
  v_caps integer[];
  v_away tid[];
  v_held tid[];
  v_queue text;
  v_chosen integer;
  v_probes text[] := '{}';
begin
  v_lanes := array(select k.kind from redrive.kind k);
  v_open := redrive.open_lanes(p_queues, p_handles, p_only, p_closed, p_seg_queue, p_seg_lane, p_seg_priority,
    p_seg_position, p_seg_until);
  -- Limited kinds are claimed with their row locked. The next statement counts with a snapshot taken after the lock.
  -- Who already holds kind rows (a cycle that freed places) must not wait for others: it passes them by.
  if p_wait then
    perform 1 from redrive.kind k
    where k.kind = any (v_open) and (k.concurrency is not null or k.rate_ms is not null)
    order by k.kind for update;
    passed_by := false;
  else
    v_free := array(
      select k.kind from redrive.kind k where k.kind = any (v_open) and (k.concurrency is not null or k.rate_ms is not null)
      order by k.kind for update skip locked);
    v_free := v_free || array(
      select k.kind from redrive.kind k where k.kind = any (v_open) and k.concurrency is null and k.rate_ms is null);
    passed_by := cardinality(v_free) < cardinality(v_open);
    v_open := v_free;
  end if;
  if exists (select 1 from redrive.kind k where k.kind = any (v_open) and k.circuit is not null) then
    v_probes := redrive.lock_probes(v_open);
  end if;
  select array_agg(c.kind), array_agg(c.cap) into v_open, v_caps
  from (
    -- An unlimited lane may offer more than is wanted: others may have locked its head. Of an open circuit one task is a
    -- probe, whatever kinds share it.
    select k.kind, case when k.concurrency is null and k.rate_ms is null and k.circuit is null then p_scan else least(p_want,
      k.concurrency - k.running,
      case when k.rate_ms is null then p_want when redrive.too_soon(k.next_at, k.rate_ms) then 0 else 1 end,
      case when k.circuit is null then p_want when k.circuit = any (v_probes)
        and row_number() over (partition by k.circuit order by k.kind) = 1 then 1 else 0 end) end as cap
    from redrive.kind k where k.kind = any (v_open)
  ) c where c.cap > 0;

  with lane as (
    -- "cap" may run; up to "reach" rows are looked at, because rows of held groups may stand in front.
    select q.queue, q.ord, l.lane, l.cap, l.reach
    from unnest(p_queues) with ordinality q(queue, ord)
    cross join (
      select '' as lane, p_scan as cap, p_scan as reach where p_only is null
      union all select u.lane, u.cap, case when p_groups is null then u.cap else greatest(u.cap, p_scan) end
      from unnest(v_open, v_caps) u(lane, cap)) l
  ), ready as (
    select r.*, lane.ord, lane.lane, lane.cap, lane.reach
    from lane
    left join unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
      s(queue, lane, priority, pos, until) on s.queue = lane.queue and s.lane = lane.lane
    cross join lateral (
      select c.ctid as at, c.kind, c.task_group, c.priority, c.position from redrive.task c
      where c.state = 'queued' and c.queue = lane.queue and c.lane = lane.lane
        and (c.priority, c.position) >= (coalesce(s.priority, -32768), coalesce(s.pos, 0))
        and c.priority <= coalesce(s.until, 32767)
      order by c.priority, c.position limit lane.reach) r
  ), judged as (
    select r.*,
      case when p_groups is not null and r.task_group = any (p_groups) then 'held'
        when r.lane = '' and (r.kind = any (v_lanes) or (p_handles is not null and r.kind <> all (p_handles))) then 'away'
        else 'run' end as verdict
    from ready r
  ), cut as materialized (
    -- A lane that was read as far as "reach" and had to set rows aside goes on behind them: nothing that comes later in
    -- line may run before that was looked at. Computed once: inlined, it would be for each row of a claim.
    select j.ord, max(j.priority) as priority, max(j.position) filter (where j.priority = j.last) as position
    from (select x.*, max(x.priority) over (partition by x.ord, x.lane) as last from judged x) j
    group by j.ord, j.lane having count(*) = max(j.reach) and bool_or(j.verdict <> 'run')
    order by j.ord, 2, 3 limit 1
  ), sorted as (
    -- A kind's free places count over all queues together.
    select j.*, row_number() over (partition by j.lane, j.verdict order by j.ord, j.priority, j.position) as nth
    from judged j
  ), chosen as materialized (
    (select s.at, s.verdict from sorted s left join cut c on true
      where s.verdict = 'run' and s.nth <= s.cap
        and (c.ord is null or (s.ord, s.priority, s.position) <= (c.ord, c.priority, c.position))
      order by s.ord, s.priority, s.position limit p_scan)
    union all select s.at, s.verdict from sorted s where s.verdict <> 'run'
  ), mine as (
    -- In their order, until there are enough. "is true" keeps the planner off the ready index, which it would read from
    -- end to end for these few rows.
    select x.at from (select c.at from chosen c where c.verdict = 'run') r cross join lateral (
      select t.ctid as at from redrive.task t where t.ctid = r.at and (t.state = 'queued') is true
      for update skip locked) x
    limit p_want
  ), others as (
    select t.ctid as at from redrive.task t
    where t.ctid = any (array(select c.at from chosen c where c.verdict <> 'run')) and (t.state = 'queued') is true
    for update skip locked
  )
  select (select array_agg(m.at) from mine m),
    (select array_agg(o.at) from others o join chosen c on c.at = o.at where c.verdict = 'away'),
    (select array_agg(o.at) from others o join chosen c on c.at = o.at where c.verdict = 'held'),
    (select count(*) from chosen c where c.verdict = 'run')
  into picked, v_away, v_held, v_chosen;
  -- Fewer than were there: the rest is locked by others, and there may be more behind it.
  contended := coalesce(cardinality(picked), 0) < least(v_chosen, p_want);

  if v_away is not null then
    insert into redrive.kind (kind) select distinct t.kind from redrive.task t where t.ctid = any (v_away)
    order by t.kind on conflict do nothing;
    with moved as (
      update redrive.task t set lane = t.kind where t.ctid = any (v_away) returning t.queue, t.position
    )
    -- They keep their place in line; the hint makes every worker look for it.
    select count(redrive.wake(m.queue, m.position)) from (
      select moved.queue, min(moved.position) as position from moved group by moved.queue) m into v_queue;
  end if;
  if v_held is not null then
    with moved as (
      update redrive.task t set state = 'paused', paused_by = 'group:' || t.task_group
      where t.ctid = any (v_held) returning t.queue, t.kind
    )
    insert into redrive.total_delta (queue, kind, queued, paused)
    select m.queue, m.kind, -count(*), count(*) from moved m group by m.queue, m.kind;
  end if;
  set_aside := v_away is not null or v_held is not null;
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
  execute format('grant execute on function redrive.enqueue(text, jsonb, redrive.traceparent, integer, integer, interval, '
    'timestamptz, interval, text, text, text, text, uuid) to %I', p_role);
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

-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
