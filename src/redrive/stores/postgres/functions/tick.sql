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
  update redrive.worker w set seen_at = v_now, running = p_running, stopping = p_stopping,
    -- Back from a gap, it ticks before it beats; the gap is one all the same.
    beating_since = case when w.seen_at < v_now - make_interval(secs => 2 * w.beats_ms / 1000.0) then v_now else w.beating_since end
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
      beats_ms = null, beating_since = null, machine = null, birth = null, dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
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
    (select min(k.next_at) from redrive.kind k where k.rate_ms is not null and k.next_at > v_now),
    (select min(c.until) from redrive.circuit c where c.open and c.until > v_now)) - clock_timestamp()) end;
  promoted := promoted + v_back;
  return next;
end $$;

-- Which build of the application a worker runs: what fails from now on is known to be of it.
create or replace function redrive.note_build(p_worker text, p_build text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update redrive.worker w set build = p_build where w.id = p_worker and w.build is distinct from p_build
$$;
