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
