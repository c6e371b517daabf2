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
      'grant_again'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;

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

alter table redrive.task drop column deaths;
alter table redrive.worker
  drop column beats_ms, drop column beating_since, drop column dead_at, drop column stalled_ms, drop column drain_at,
  drop column drain_by, drop column drain_reason;
