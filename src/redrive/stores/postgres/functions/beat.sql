-- A worker's own beat, which comes apart from its ticks and from what it runs. "silent_in": seconds until somebody may be judged,
-- if that is before the next beat. "declared": it had been declared dead. "drain": somebody has asked it to end. "neighbours": the
-- other workers whose processes this one can look for: pid, birth, seconds since its last beat and between two of them. p_age: seconds since this process became a worker, so that whatever was
-- claimed under its name before then is another process's. p_machine, p_birth: where a pid means the same process, and which of
-- those that had this pid it is; null where the system does not tell.
create or replace function redrive.worker_beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_age double precision, p_tick_ms integer, p_beats_ms integer, p_stalled_ms integer, p_dead_after_ms integer, p_lease_ms integer,
  p_machine text, p_birth bigint,
  out silent_in double precision, out declared boolean, out drain boolean, out neighbours jsonb
) language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_started constant timestamptz := v_now - make_interval(secs => p_age);
  v_row redrive.worker;
begin
  select w.* into v_row from redrive.worker w where w.id = p_worker for no key update;
  -- In containers host and pid are often the same for the next process.
  if found and v_row.host = p_host and v_row.pid = p_pid
    and coalesce(v_row.machine = p_machine, true) and coalesce(v_row.birth = p_birth, true) then
    declared := v_row.dead_at is not null;
    update redrive.worker w set seen_at = v_now, running = p_running, started_at = least(w.started_at, v_started),
      beats_ms = p_beats_ms, stalled_ms = p_stalled_ms, dead_at = null, machine = p_machine, birth = p_birth,
      -- Two beats late, it may have been cut off, and others with it: it cannot tell who was silent.
      beating_since = case when w.beats_ms is null or w.beating_since > v_now
        or w.seen_at < v_now - make_interval(secs => 2 * p_beats_ms / 1000.0) then v_now else w.beating_since end
    where w.id = p_worker;
    drain := v_row.drain_at is not null;
  else
    insert into redrive.worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms,
      beats_ms, beating_since, stalled_ms, machine, birth)
    values (p_worker, p_host, p_pid, p_queues, p_concurrency, p_running, p_version, v_started, v_now, false, p_tick_ms,
      p_beats_ms, v_now, p_stalled_ms, p_machine, p_birth)
    -- Another process under the same name.
    on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues,
      concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
      started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
      beat_ms = excluded.beat_ms, beats_ms = excluded.beats_ms, beating_since = excluded.beating_since,
      stalled_ms = excluded.stalled_ms, machine = excluded.machine, birth = excluded.birth,
      dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
    declared := false;
    drain := false;
  end if;
  silent_in := (
    select extract(epoch from s.judged_at - v_now) from redrive.silent(p_worker, p_dead_after_ms, p_lease_ms, v_now) s
    where s.judged_at <= v_now + make_interval(secs => p_beats_ms / 1000.0));
  -- What another process had under this name, which is silent if nobody has taken the name back for so long.
  if p_age <= (p_dead_after_ms + p_lease_ms) / 1000.0 and redrive.left_behind(p_worker, v_now) then
    silent_in := least(silent_in, greatest(p_dead_after_ms, 3 * p_beats_ms) / 1000.0 - (
      select extract(epoch from v_now - greatest(w.started_at, w.beating_since)) from redrive.worker w where w.id = p_worker));
  end if;
  neighbours := (
    select jsonb_object_agg(w.id, jsonb_build_array(w.pid, w.birth, extract(epoch from v_now - w.seen_at), w.beats_ms / 1000.0))
    from redrive.worker w
    where w.machine = p_machine and w.host = p_host and w.birth is not null and w.beats_ms is not null and w.id <> p_worker
      and w.dead_at is null and not (w.stopping and w.running = 0)
      and w.seen_at > v_now - make_interval(secs => (p_dead_after_ms + p_lease_ms) / 1000.0));
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

-- Who of the fleet is silent, and from when on this worker may declare them dead ("judged_at"; while nobody is silent, when
-- somebody will be). As a rule as soon as it has itself beaten without a gap for as long as silence takes. But where those who
-- may have been cut off (two beats late by now, or back from a gap only since then) are more than those who have been heard all
-- that time, it may be the network ("cut_off"): then four times that long must have passed since each of them was heard and
-- since the judge's beats began, so that nobody is taken for dead who was away for a while, be it the first of many to be
-- missed or the last of many to come back. Each by itself: one that dies again and again must not put off what becomes of the
-- others. Those who were declared dead in that way count for as long again, or the last of them would be taken for the only
-- one. The same for SQLite: stores/sqlite/beat.py.
create or replace function redrive.silent(p_worker text, p_dead_after_ms integer, p_lease_ms integer, p_now timestamptz,
  out ids text[], out judged_at timestamptz, out cut_off boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select case when g.few then g.silent else g.long_silent end,
    case when g.silent is null then g.next when g.few then greatest(g.next, g.since + g.patience)
      else greatest(g.heard, g.since) + 4 * g.patience end, g.silent is not null and not g.few
  from (
    select p.patience, array_agg(f.id) filter (where f.silent_at <= p_now) as silent,
      array_agg(f.id) filter (where f.silent_at <= p_now and w.seen_at <= p_now - 4 * p.patience) as long_silent,
      min(f.silent_at) filter (where f.id <> p_worker) as next,
      min(w.seen_at) filter (where f.silent_at <= p_now) as heard,
      coalesce(min(w.beating_since) filter (where f.id = p_worker), 'infinity') as since,
      count(*) filter (where l.late or (w.beating_since > p_now - p.patience and w.beating_since > w.started_at + p.patience))
        + (select count(*) from redrive.worker d where d.dead_at is not null and d.cut_off_at > p_now - 4 * p.patience)
        <= count(*) filter (where not l.late and w.beating_since <= p_now - p.patience) as few
    from (select make_interval(secs => p_dead_after_ms / 1000.0) as patience) p
      cross join redrive.fleet(p_dead_after_ms, p_lease_ms, p_now) f join redrive.worker w on w.id = f.id
      cross join lateral (select w.seen_at < p_now - make_interval(secs => 2 * w.beats_ms / 1000.0) as late) l
    group by p.patience
  ) g
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
-- without a gap for as long as that takes. "cut_off": so many are silent that it may be the network: leases that end at that
-- moment (worker.cut_off_at) are not held against their tasks.
create or replace function redrive.judge_silent(p_worker text, p_dead_after_ms integer, p_lease_ms integer)
returns table (worker text, tasks integer, cut_off boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_since constant timestamptz := v_now - make_interval(secs => p_dead_after_ms / 1000.0);
  v_silent record;
  v_started timestamptz;
begin
  if not exists (
    select 1 from redrive.worker w where w.id = p_worker and w.beats_ms is not null and w.beating_since <= v_since
      and w.seen_at > v_now - make_interval(secs => 2 * w.beats_ms / 1000.0))
  then return; end if;
  select s.* into v_silent from redrive.silent(p_worker, p_dead_after_ms, p_lease_ms, v_now) s;
  cut_off := v_silent.cut_off;
  if v_silent.judged_at <= v_now then
    for worker in
      select w.id from redrive.worker w where w.id = any (v_silent.ids)
        -- Somebody else may have been quicker, or itself.
        and w.dead_at is null and w.seen_at + make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0) <= v_now
      order by w.id for update skip locked
    loop
      tasks := redrive.end_leases(worker, 'infinity', v_now);
      update redrive.worker w set cut_off_at = case
          when v_silent.cut_off and (tasks > 0 or w.cut_off_at is null or w.cut_off_at < w.seen_at) then v_now
          else w.cut_off_at end,
        -- What is left is in the hands of a transaction that may never end: it is looked at again.
        dead_at = case when not redrive.has_leases(w.id, v_now) then v_now end
      where w.id = worker;
      return next;
    end loop;
  end if;
  cut_off := false;
  -- What another process had under a name that has been taken over since: that one would have taken it back by now.
  for worker, v_started in
    select w.id, w.started_at from redrive.worker w
    where w.id = p_worker and w.started_at <= v_now - make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0)
  loop
    tasks := redrive.end_leases(worker, v_started, v_now);
    if tasks > 0 then return next; end if;
  end loop;
end $$;

-- Whether a worker has leases that have not ended.
create or replace function redrive.has_leases(p_worker text, p_now timestamptz) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select exists (
    select 1 from redrive.task t where t.state = 'running' and t.lease_expires_at > p_now and t.worker_id = p_worker)
$$;

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

-- Ends the leases of a worker whose process is known to be gone: whoever started it has seen it end, or somebody on the same
-- machine has looked. Returns how many; null if the worker is another process by now, or is declared dead already.
create or replace function redrive.bury_process(p_worker text, p_host text, p_pid integer, p_machine text, p_birth bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_count integer;
begin
  perform 1 from redrive.worker w
  where w.id = p_worker and w.host = p_host and w.pid = p_pid and w.dead_at is null
    and (p_machine is null or w.machine = p_machine) and (p_birth is null or w.birth = p_birth) for update;
  if not found then return null; end if;
  v_count := redrive.end_leases(p_worker, 'infinity', v_now);
  update redrive.worker w set dead_at = v_now where w.id = p_worker and not redrive.has_leases(p_worker, v_now);
  return v_count;
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
