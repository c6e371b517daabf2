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
alter table redrive.task add column deaths smallint not null default 0; -- workers that were lost while they had it

-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

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
  -- In its first moments: what another process had under this name, which is silent if nobody took the name back.
  if p_age <= (p_dead_after_ms + p_beats_ms) / 1000.0 and redrive.left_behind(p_worker, v_now) then
    silent_in := least(silent_in, greatest(p_dead_after_ms, 3 * p_beats_ms) / 1000.0 - p_age);
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
