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
