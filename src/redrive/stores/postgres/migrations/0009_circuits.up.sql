-- Circuits: kinds whose other side is down are not claimed, but for one task at a time that tries whether it is back.

-- "kinds" are those that share it. While it is "open", nothing of them is claimed before "until"; then one task is, the
-- probe, and the next one only when that one has ended.
create table redrive.circuit (
  name           text primary key,
  version        integer not null,
  kinds          text[] not null,
  open           boolean not null,
  since          timestamptz not null,             -- open or closed
  until          timestamptz,
  reason         text,                             -- why it opened, or why the last probe failed
  actor          text,                             -- the worker or person that opened or closed it
  failed_probes  integer not null default 0,       -- since it opened
  opened         bigint not null default 0,        -- how many times
  probe          uuid,                             -- the task that tries or tried last, and the token of its lease
  token          uuid
);
alter table redrive.kind add column circuit text;  -- the open circuit that the kind waits for

-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

-- functions/circuits.sql

-- Whether a probe may start of an open circuit: its time has come, and the last one has ended, whatever became of it.
create or replace function redrive.may_probe(p_until timestamptz, p_probe uuid, p_token uuid) returns boolean
language sql volatile as $$
  select p_until <= pg_catalog.clock_timestamp() and not exists (
    select 1 from redrive.task t
    where t.id operator(pg_catalog.=) p_probe and t.state operator(pg_catalog.=) 'running'
      and t.lease_token operator(pg_catalog.=) p_token)
$$;

-- The open circuits of these kinds that let a probe start, locked. Who finds one locked passes it by: somebody else is
-- about to start its probe, or to close it.
create or replace function redrive.lock_probes(p_kinds text[]) returns text[]
language plpgsql as $$
declare
  v_names text[];
begin
  v_names := array(
    select c.name from redrive.circuit c
    where c.name in (select k.circuit from redrive.kind k where k.kind = any (p_kinds) and k.circuit is not null)
    order by c.name for update skip locked);
  -- Once more, with a snapshot taken after the lock: a probe may have been started while this one waited for its turn.
  return array(
    select c.name from redrive.circuit c where c.name = any (v_names) and redrive.may_probe(c.until, c.probe, c.token));
end $$;

-- Opens, closes or changes a circuit that nobody else changed since it was read; false if somebody did. p_wait: seconds
-- until a probe, null leaves that as it is.
create or replace function redrive.set_circuit(
  p_name text, p_version integer, p_kinds text[], p_open boolean, p_wait double precision, p_reason text, p_actor text,
  p_failed_probes integer, p_opened bigint
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_until constant timestamptz := v_now + make_interval(secs => p_wait);
  v_changed integer;
begin
  -- Waits for claims in flight, as a pause does: none starts a task after this returned.
  lock table redrive.move_lock in exclusive mode;
  if p_version = 0 then
    insert into redrive.circuit (name, version, kinds, open, since, until, reason, actor, failed_probes, opened)
    values (p_name, 1, p_kinds, p_open, v_now, v_until, p_reason, p_actor, p_failed_probes, p_opened) on conflict do nothing;
  else
    update redrive.circuit c set version = c.version + 1, kinds = p_kinds, open = p_open,
      since = case when c.open = p_open then c.since else v_now end,
      until = case when p_open then coalesce(v_until, c.until) end, reason = p_reason, actor = p_actor,
      failed_probes = p_failed_probes, opened = p_opened,
      token = case when p_open and coalesce(p_wait, 0) = 0 then c.token end
    where c.name = p_name and c.version = p_version;
  end if;
  get diagnostics v_changed = row_count;
  if v_changed = 0 then return false; end if;
  if p_open then
    insert into redrive.kind (kind) select distinct k from unnest(p_kinds) k on conflict do nothing;
  end if;
  update redrive.kind k set circuit = case when p_open and k.kind = any (p_kinds) then p_name end
  where k.circuit = p_name or (p_open and k.kind = any (p_kinds));
  if not p_open or p_wait = 0 then perform pg_notify('redrive', 'ready * 0'); end if;
  return true;
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
  ), cut as (
    -- A lane that was read as far as "reach" and had to set rows aside goes on behind them: nothing that comes later in
    -- line may run before that was looked at.
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
      coalesce(p.trace_parent, p.trace_id::text), p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
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
      ), probes as (
        update redrive.circuit c set probe = p.id, token = p_token
        from picked p join redrive.kind k on k.kind = p.kind where c.name = k.circuit
      )
      select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
        p.max_attempts::integer, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
        coalesce(p.trace_parent, p.trace_id::text), p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
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
    (select min(k.next_at) from redrive.kind k where k.rate_ms is not null and k.next_at > v_now),
    (select min(c.until) from redrive.circuit c where c.open and c.until > v_now)) - clock_timestamp()) end;
  promoted := promoted + v_back;
  return next;
end $$;

-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
