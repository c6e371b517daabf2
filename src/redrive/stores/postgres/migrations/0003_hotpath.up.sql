-- The worker's verbs: claim, complete, move, renew. Each is one statement for the caller and one transaction.
--
-- Every function that is called from outside carries its own planner settings: plans must not depend on table
-- statistics, which are wrong for a queue most of the time, and sessions behind a transaction pooler cannot keep
-- settings. Functions that only "cycle" calls run under its settings; setting them again would cost a tenth of a claim.

-- Payloads that were written past the limit are not handed out: the claim is refused, and their rows are set aside. Called
-- for those that are large on the disk; a smaller one that is large when it is read is set aside by whoever claimed it.
create function redrive.within_limit(p_value jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(p_value::text) > 1048576 then
    raise exception 'a payload is % bytes, over the limit of 1,048,576', octet_length(p_value::text) using
      errcode = 'invalid_parameter_value';
  end if;
  return p_value;
end $$;

create type redrive.claimed as (
  id uuid, kind text, queue text, lane text, priority smallint, "position" bigint, payload jsonb, attempt_count integer,
  max_attempts integer, created_at timestamptz, task_group text, scope text, trace_id text, idempotency_key text,
  timeout_ms integer, memo jsonb, replay_count integer, feature text, join_id uuid
);

-- Lanes with something ready and room, seen without locks: an idle worker locks nothing.
create function redrive.open_lanes(
  p_queues text[], p_handles text[], p_only text, p_closed text[], p_seg_queue text[], p_seg_lane text[],
  p_seg_priority integer[], p_seg_position bigint[], p_seg_until integer[]
) returns text[] language plpgsql as $$
begin
  return array(
    select k.kind from redrive.kind k
    where (p_only is null or k.kind = p_only) and (p_handles is null or k.kind = any (p_handles))
      and (p_closed is null or k.kind <> all (p_closed))
      and (k.concurrency is null or k.running < k.concurrency)
      and (k.next_at is null or k.next_at <= clock_timestamp())
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
create function redrive.candidates(
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
  select array_agg(c.kind), array_agg(c.cap) into v_open, v_caps
  from (
    -- An unlimited lane may offer more than is wanted: others may have locked its head.
    select k.kind, case when k.concurrency is null and k.rate_ms is null then p_scan else least(p_want, k.concurrency - k.running,
      case when k.rate_ms is null then p_want when k.next_at > clock_timestamp() then 0 else 1 end) end as cap
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

-- Claim up to p_want ready tasks of p_queues in order. A row of nulls means: there may be more, look again at once. The p_seg_* columns say where to start in each lane and
-- priority range: entries before that were claimed long ago and may still lie in the index, dead.
create function redrive.claim(
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
      p.max_attempts, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
      p.trace_id::text, p.idempotency_key::text, p.timeout_ms, p.memo, p.replay_count, p.feature, p.join_id
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
      )
      select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
        p.max_attempts, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
        p.trace_id::text, p.idempotency_key::text, p.timeout_ms, p.memo, p.replay_count, p.feature, p.join_id
      from picked p order by array_position(v_queues, p.queue), p.priority, p.position;
      get diagnostics v_got = row_count;
      v_left := v_left - v_got;
    end if;
    -- Rows that were set aside or are locked by others may have hidden more behind them: look again, and further.
    exit when v_left <= 0 or not (v_set_aside or v_contended);
  end loop;
  if v_left > 0 and (v_set_aside or v_passed_by or v_contended) then return next null::redrive.claimed; end if;
end $$;

-- Frees places of limited kinds and wakes the fleet where a kind had been full. Locks are taken in one order: task rows
-- by id, then kind rows by name, each once per transaction; a claim that already holds kind rows waits for nothing.
create function redrive.free_places(p_kinds text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_was_full boolean;
begin
  perform 1 from redrive.kind k where k.kind = any (p_kinds) and k.concurrency is not null order by k.kind for update;
  if not found then return; end if;
  with freed as (
    update redrive.kind k set running = greatest(k.running - u.n, 0)
    from (select x.kind, count(*)::integer as n from unnest(p_kinds) x(kind) group by x.kind) u
    where k.kind = u.kind and k.concurrency is not null
    returning k.running + u.n >= k.concurrency as was_full
  )
  select bool_or(was_full) into v_was_full from freed;
  if v_was_full then perform pg_notify('redrive', 'look'); end if;
end $$;

-- Completion, the common end: rows leave for history. Answers the ids that were completed; the rest lost their lease.
-- No "state = 'running'" here: the planner would read the lease index, dead entries and all. A token exists only
-- while a task runs, so the token alone is the fence. Tasks that a feature reacts to are moved by "move".
-- p_keep: seconds that a task is kept in history; null: as long as all others, 0: it leaves nothing.
create function redrive.complete(p_ids uuid[], p_tokens uuid[], p_ms real[], p_results jsonb[],
  p_keep double precision[] default null) returns uuid[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_done uuid[];
  v_kinds text[];
  v_joins uuid[];
begin
  lock table redrive.move_lock in row share mode;
  with done as (
    delete from redrive.task t
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
      and t.feature is null
    returning t.*
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, result, expires_at, join_id)
    select d.id, clock_timestamp(), d.created_at, d.last_attempt_at, d.lease_token, v.ms, 'completed',
      d.attempt_count, d.max_attempts, d.replay_count, d.timeout_ms, d.priority, d.kind, d.queue, d.task_group, d.scope,
      d.trace_id, d.idempotency_key, d.worker_id, v.result,
      case when v.keep is not null then clock_timestamp() + make_interval(secs => v.keep) end, d.join_id
    from done d join unnest(p_ids, p_tokens, p_ms, p_results, p_keep) v(id, token, ms, result, keep)
      on v.id = d.id and v.token = d.lease_token
    where v.keep is distinct from 0
  ), tally as (
    insert into redrive.total_delta (queue, kind, running, completed)
    select d.queue, d.kind, -count(*), count(*) from done d group by d.queue, d.kind
  )
  select array_agg(d.id), array_agg(d.kind), array_agg(d.join_id) filter (where d.join_id is not null)
  into v_done, v_kinds, v_joins from done d;
  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_joins is not null then
    perform redrive.arrive(v_joins, null, array_fill('completed'::redrive.state, array[cardinality(v_joins)]));
  end if;
  return v_done;
end $$;

-- Members of joins went from one state to another: only those in which a task has ended count. p_was null: from none.
-- Rows of joins are locked after those of tasks and kinds, in the order of their ids.
create function redrive.arrive(p_joins uuid[], p_was redrive.state[], p_now redrive.state[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_changes jsonb;
  v_large uuid[];
  v_small uuid[];
begin
  select jsonb_agg(c.*) into v_changes from (
    select x.id, sum(x.n) filter (where x.state = 'completed') as completed, sum(x.n) filter (where x.state = 'failed') as failed,
      sum(x.n) filter (where x.state = 'cancelled') as cancelled
    from (
      select u.id, u.state, 1 as n from unnest(p_joins, p_now) u(id, state)
      union all select u.id, u.state, -1 from unnest(p_joins, p_was) u(id, state)
    ) x where x.state in ('completed', 'failed', 'cancelled') group by x.id) c;
  if v_changes is null then return; end if;
  with large as (
    insert into redrive.join_delta (join_id, completed, failed, cancelled)
    select c.id, coalesce(c.completed, 0), coalesce(c.failed, 0), coalesce(c.cancelled, 0)
    from jsonb_to_recordset(v_changes) c(id uuid, completed bigint, failed bigint, cancelled bigint)
    join redrive.task_join j on j.id = c.id where j.total > 1000
    returning join_id
  )
  select coalesce(array_agg(l.join_id), '{}') into v_large from large l;
  v_small := array(
    select j.id from redrive.task_join j
    where j.id = any (array(select c.id from jsonb_to_recordset(v_changes) c(id uuid))) and j.id <> all (v_large)
    order by j.id for update);
  update redrive.task_join j set completed = j.completed + coalesce(c.completed, 0), failed = j.failed + coalesce(c.failed, 0),
    cancelled = j.cancelled + coalesce(c.cancelled, 0)
  from jsonb_to_recordset(v_changes) c(id uuid, completed bigint, failed bigint, cancelled bigint)
  where j.id = any (v_small) and c.id = j.id;
  perform redrive.end_joins(v_small);
end $$;

-- Where the last member has come, enqueue what follows. The rows of these joins are locked, or are so from here on.
create function redrive.end_joins(p_ids uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_join record;
  v_task jsonb;
begin
  for v_join in
    select j.id, case when j.ended_at is null then j.on_complete end as on_complete,
      case when j.succeeded_at is null and j.completed = j.total then j.on_success end as on_success
    from redrive.task_join j
    where j.id = any (p_ids) and not j.is_open and j.completed + j.failed + j.cancelled = j.total
      and (j.ended_at is null or (j.succeeded_at is null and j.completed = j.total))
    order by j.id for update
  loop
    update redrive.task_join j set ended_at = coalesce(j.ended_at, clock_timestamp()), on_complete = null,
      succeeded_at = case when j.completed = j.total then coalesce(j.succeeded_at, clock_timestamp()) end,
      on_success = case when j.completed < j.total then j.on_success end
    where j.id = v_join.id;
    foreach v_task in array array_remove(array[v_join.on_complete, v_join.on_success], null) loop
      perform redrive.add(array[(v_task ->> 'id')::uuid], array[v_task ->> 'kind'], array[v_task ->> 'queue'],
        array[(v_task ->> 'payload')::jsonb], array[(v_task ->> 'priority')::integer],
        array[(v_task ->> 'max_attempts')::integer], array[(v_task ->> 'delay')::double precision], null,
        array[((v_task ->> 'timeout')::double precision * 1000)::integer], array[v_task ->> 'group'], array[v_task ->> 'scope'],
        array[v_task ->> 'trace_id'], array[v_task ->> 'idempotency_key'], false, array[v_task ->> 'feature'],
        array[(v_task ->> 'facts')::jsonb], array[(v_task ->> 'join')::uuid]);
    end loop;
  end loop;
end $$;

-- No further members.
create function redrive.close_join(p_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  update redrive.task_join j set is_open = false where j.id = p_id;
  perform redrive.end_joins(array[p_id]);
end $$;

-- New joins. What has no members when its transaction ends has ended: "close_join" sees to that.
create function redrive.open_joins(p_joins jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.task_join (id, created_at, is_open, on_complete, on_success)
  select x.id, clock_timestamp(), x.is_open, x.on_complete, x.on_success
  from jsonb_to_recordset(p_joins) x(id uuid, is_open boolean, on_complete jsonb, on_success jsonb);
end $$;

-- The group that a failure goes into: its own, or, where there is none yet, the one that an earlier version of the
-- algorithm has made for the same cause, so that its notes, mutes and owner stay.
create function redrive.group_of(p_fingerprint text, p_former jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((
    select n.name from (
      select p_fingerprint as name, 0::bigint as nth
      union all select f.name, f.nth from jsonb_array_elements_text(p_former) with ordinality f(name, nth)) n
    where exists (select 1 from redrive.failure_group g where g.fingerprint = n.name)
      or exists (select 1 from redrive.failure_delta d where d.fingerprint = n.name)
    order by n.nth limit 1), p_fingerprint)
$$;

create function redrive.regrouped(p_moves jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_agg(case when x.move ? 'former' then x.move || jsonb_build_object(
      'fingerprint', redrive.group_of(x.move ->> 'fingerprint', x.move -> 'former')) else x.move end order by x.nth)
  from jsonb_array_elements(p_moves) with ordinality x(move, nth)
$$;

-- Every other transition, as decided by the state machine: requeue, fail, cancel, pause, resume, retry by an operator.
-- Each element is applied if the row is in one of its source states and the fence holds. Returns the ids moved, and what is
-- known about those that a feature reacts to (the caller does, in this transaction). Tasks of features that are not among
-- p_features are left to a process that knows them.
create function redrive.move(p_moves jsonb, p_features text[] default '{}', out moved uuid[], out landed jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_kinds text[];
  v_due jsonb;
  v_wake jsonb;
  v_members jsonb;
  v_revived record;
begin
  lock table redrive.move_lock in row share mode;
  if p_moves @? '$[*].former' then p_moves := redrive.regrouped(p_moves); end if;
  with v as materialized (
    select * from jsonb_to_recordset(p_moves) x(
      id uuid, token uuid, fenced boolean, expired boolean, sources text[], event text, target redrive.state,
      delay double precision, attempts text, memo jsonb, result jsonb, ms real, code text, cause text, type text,
      message text, stack text, fingerprint text, summary jsonb, dead text, actor text, action text, reason text, batch text,
      seen bigint, keep double precision)
  ), l as materialized (
    -- Locked in the order of their ids, so that two moves over the same rows cannot deadlock.
    select t.* from redrive.task t where t.id = any (array(select v.id from v)) order by t.id for update
  ), ok as materialized (
    select v.*, l.state as was, l.queue, l.kind, l.scope, l.attempt_count, l.replay_count, l.worker_id, l.max_attempts,
      l.task_group, l.trace_id, l.feature, l.facts, l.join_id,
      case
        -- A task somebody wants cancelled is not queued again, nor failed for want of a worker.
        when l.cancel_requested_at is not null and l.state = 'running'
          and (v.target in ('queued', 'delayed') or v.event = 'expire') then 'cancelled'
        when v.event = 'resume' and l.next_attempt_at > v_now then 'delayed'
        else v.target
      end::redrive.state as final
    from v join l on l.id = v.id
    where l.state::text = any (v.sources) and (not v.fenced or l.lease_token = v.token)
      and (not v.expired or l.lease_expires_at <= v_now) and (v.seen is null or l.failed_seq is not distinct from v.seen)
      and (l.feature is null or l.feature = any (p_features))
  ), retired as (
    delete from redrive.task t using ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final in ('completed', 'cancelled')))
    returning t.*, ok.event, ok.final, ok.ms, ok.result, ok.reason, ok.keep
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, cancel_reason, payload, result, expires_at, feature, facts, join_id)
    select r.id, v_now, r.created_at, r.last_attempt_at, case when r.event <> 'expire' then r.lease_token end, r.ms, r.final,
      r.attempt_count, r.max_attempts, r.replay_count, r.timeout_ms, r.priority, r.kind, r.queue, r.task_group, r.scope,
      r.trace_id, r.idempotency_key, r.worker_id, r.reason, case when r.final = 'cancelled' then r.payload end, r.result,
      case when r.keep is not null then v_now + make_interval(secs => r.keep) end, r.feature, r.facts, r.join_id
    from retired r where r.final <> 'completed' or r.keep is distinct from 0
  ), stayed as (
    update redrive.task t set
      state = ok.final,
      position = case when ok.final = 'queued' then nextval('redrive.position') else t.position end,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), ''),
      next_attempt_at = case
        when ok.event in ('pause', 'resume') and ok.final <> 'queued' then t.next_attempt_at
        when ok.final = 'delayed' then v_now + make_interval(secs => ok.delay) end,
      attempt_count = case ok.attempts when '-1' then t.attempt_count - 1 when 'reset' then 0 else t.attempt_count end,
      lease_token = null, lease_expires_at = null, worker_id = null, cancel_requested_at = null,
      settled_token = case when ok.fenced and ok.event <> 'expire' then ok.token else t.settled_token end,
      paused_by = case when ok.final = 'paused' then ok.actor end,
      memo = case when ok.event = 'redrive' then null else coalesce(ok.memo, t.memo) end,
      progress = case when ok.event in ('redrive', 'retry', 'expire') then null else t.progress end,
      error_code = case when ok.event = 'redrive' then null else coalesce(ok.code, t.error_code) end,
      error_reason = case when ok.event = 'redrive' then null else coalesce(ok.cause, t.error_reason) end,
      failure_type = case when ok.event = 'redrive' then null else coalesce(ok.type, t.failure_type) end,
      error_message = case when ok.event = 'redrive' then null else coalesce(ok.message, t.error_message) end,
      error_stack = case when ok.event = 'redrive' then null when ok.code is null then t.error_stack else ok.stack end,
      error_fingerprint = case when ok.event = 'redrive' then null else coalesce(ok.fingerprint, t.error_fingerprint) end,
      error_summary = case when ok.event = 'redrive' then null when ok.code is null then t.error_summary else ok.summary end,
      failed_at = case when ok.final = 'failed' then v_now end,
      failed_seq = case when ok.final = 'failed' then nextval('redrive.failed_seq') end,
      dead_reason = case when ok.final = 'failed' then ok.dead end,
      replay_count = t.replay_count + case when ok.event = 'redrive' then 1 else 0 end,
      last_replayed_at = case when ok.event = 'redrive' then v_now else t.last_replayed_at end,
      last_replayed_by = case when ok.event = 'redrive' then ok.actor else t.last_replayed_by end,
      last_replayed_reason = case when ok.event = 'redrive' then ok.reason else t.last_replayed_reason end,
      last_replayed_batch = case when ok.event = 'redrive' then ok.batch else t.last_replayed_batch end
    from ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final not in ('completed', 'cancelled')))
    returning t.*, ok.dead
  ), tries as (
    insert into redrive.attempt (task_id, at, lease_token, execution_ms, attempt, replay, code, reason, failure_type,
      message, stack, fingerprint, worker_id, error_summary)
    select o.id, v_now, case when o.event <> 'expire' then o.token end, o.ms, o.attempt_count, o.replay_count, o.code, o.cause, o.type, o.message, o.stack,
      o.fingerprint, o.worker_id, o.summary
    from ok o where o.code is not null
  ), letters as (
    insert into redrive.dead_letter (task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue,
      task_group, scope, trace_id, payload, error_code, error_reason, failure_type, error_message, error_fingerprint,
      error_summary)
    select m.id, v_now, m.attempt_count, m.max_attempts, m.replay_count, m.dead, m.kind, m.queue, m.task_group, m.scope,
      m.trace_id, m.payload, m.error_code, m.error_reason, m.failure_type, m.error_message, m.error_fingerprint, m.error_summary
    from stayed m where m.dead is not null
  ), causes as (
    insert into redrive.failure_delta (fingerprint, n, code, reason, failure_type, message, kind, sample_task, sample_scope,
      at, error_summary)
    -- All of one row, the first: a message beside the sample of another task would be judged by the wrong payload.
    select x.fingerprint, x.n, x.code, x.cause, x.type, x.message, x.kind, x.id, x.scope, v_now, x.summary
    from (
      select o.*, count(*) over (partition by o.fingerprint, o.kind) as n,
        row_number() over (partition by o.fingerprint, o.kind order by o.id) as nth
      from ok o where o.code is not null
    ) x where x.nth = 1
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed, completed, cancelled,
      dead_letters)
    select x.queue, x.kind, sum(x.n) filter (where x.state = 'queued'), sum(x.n) filter (where x.state = 'delayed'),
      sum(x.n) filter (where x.state = 'running'), sum(x.n) filter (where x.state = 'paused'),
      sum(x.n) filter (where x.state = 'failed'), sum(x.n) filter (where x.state = 'completed'),
      sum(x.n) filter (where x.state = 'cancelled'), sum(x.letters)
    from (
      select o.queue, o.kind, o.was as state, -1 as n, 0 as letters from ok o
      union all
      select o.queue, o.kind, o.final, 1, case when o.dead is not null and o.final not in ('completed', 'cancelled') then 1 else 0 end
      from ok o
      -- one row for each state, so that no sum is null
      union all select distinct o.queue, o.kind, s.state, 0, 0 from ok o cross join unnest(enum_range(null::redrive.state)) s(state)
    ) x group by x.queue, x.kind
  ), failing as (
    insert into redrive.failed_delta (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
      fingerprint, n)
    select x.kind, x.queue, coalesce(x.task_group, ''), x.error_code, x.error_reason, x.failure_type, x.dead_reason,
      x.error_fingerprint, sum(x.n)
    from (
      select m.kind, m.queue, m.task_group, m.error_code, m.error_reason, m.failure_type, m.dead_reason,
        m.error_fingerprint, 1 as n
      from stayed m where m.state = 'failed'
      union all
      select l.kind, l.queue, l.task_group, l.error_code, l.error_reason, l.failure_type, l.dead_reason,
        l.error_fingerprint, -1
      from ok o join l on l.id = o.id where o.was = 'failed'
    ) x group by x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.error_fingerprint
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, batch_id, kind, scope, trace_id, before, after)
    select v_now, o.actor, o.action, o.reason, o.id, o.batch, l.kind, l.scope, l.trace_id,
      jsonb_build_object('state', o.was, 'attempt_count', o.attempt_count), jsonb_build_object('state', o.final)
    from ok o join l on l.id = o.id where o.actor is not null
  )
  select (select array_agg(o.id) from ok o),
    (select array_agg(o.kind) from ok o where o.was = 'running'),
    (select jsonb_object_agg(w.queue, w.due) from (
      select m.queue, min(m.next_attempt_at) as due from stayed m where m.state = 'delayed' group by m.queue) w),
    (select jsonb_object_agg(w.queue, w.position) from (
      select m.queue, min(m.position) as position from stayed m where m.state = 'queued' group by m.queue) w),
    (select jsonb_agg(jsonb_build_object('id', o.join_id, 'was', o.was, 'now', o.final)) from ok o where o.join_id is not null),
    (select jsonb_agg(redrive.landing(o.id, o.was, o.final, o.kind, o.queue, o.attempt_count, o.max_attempts, o.replay_count,
      o.task_group, o.scope, o.trace_id, o.feature, o.facts)) from ok o where o.feature is not null)
  into moved, v_kinds, v_due, v_wake, v_members, landed;

  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_wake is not null then
    perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
  end if;
  if v_due is not null then
    perform redrive.wake_due(w.key, w.value::timestamptz) from jsonb_each_text(v_due) w;
  end if;
  if v_members is not null then
    perform redrive.arrive(array_agg(m.id), array_agg(m.was), array_agg(m.now))
    from jsonb_to_recordset(v_members) m(id uuid, was redrive.state, now redrive.state);
  end if;
  moved := coalesce(moved, '{}');
  if p_moves @? '$[*] ? (@.event == "redrive")' then
    select * into v_revived from redrive.revive(p_moves, moved, p_features);
    moved := moved || v_revived.revived;
    landed := coalesce(landed || v_revived.landed, landed, v_revived.landed);
  end if;
end $$;

-- What a reaction is told about a task.
create function redrive.landing(p_id uuid, p_was redrive.state, p_now redrive.state, p_kind text, p_queue text, p_attempts integer,
  p_max_attempts integer, p_replays integer, p_group text, p_scope text, p_trace text, p_feature text, p_facts jsonb) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('id', p_id, 'was', p_was, 'state', p_now, 'kind', p_kind, 'queue', p_queue, 'attempts', p_attempts,
    'max_attempts', p_max_attempts, 'replays', p_replays, 'group', p_group, 'scope', p_scope, 'trace_id', p_trace,
    'feature', p_feature, 'facts', p_facts)
$$;


-- An operator's retry of a cancelled task: back from history into the live table.
create function redrive.revive(p_moves jsonb, p_moved uuid[], p_features text[], out revived uuid[], out landed jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids uuid[] := array(
    select x.id from jsonb_to_recordset(p_moves) x(id uuid, event text, seen bigint)
    where x.event = 'redrive' and x.seen is null and x.id <> all (p_moved));
  v_joins uuid[];
begin
  if cardinality(v_ids) = 0 then
    revived := '{}';
    return;
  end if;
  with old as (
    delete from redrive.history h
    where h.id = any (v_ids) and h.state = 'cancelled' and h.erased_at is null
      and (h.feature is null or h.feature = any (p_features)) returning h.*
  ), new as (
    insert into redrive.task (id, created_at, position, state, max_attempts, timeout_ms, priority, kind, queue, lane,
      task_group, scope, trace_id, idempotency_key, payload, replay_count, last_replayed_at, last_replayed_by,
      last_replayed_reason, last_replayed_batch, feature, facts, join_id)
    select o.id, o.created_at, nextval('redrive.position'), 'queued', o.max_attempts, o.timeout_ms, o.priority, o.kind,
      o.queue, coalesce((select k.kind from redrive.kind k where k.kind = o.kind), ''), o.task_group, o.scope, o.trace_id,
      o.idempotency_key, o.payload, o.replay_count + 1, v_now, x.actor, x.reason, x.batch,
      o.feature, o.facts, o.join_id
    from old o join jsonb_to_recordset(p_moves) x(id uuid, actor text, reason text, batch text) on x.id = o.id
    returning task.*
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, cancelled)
    select n.queue, n.kind, count(*), -count(*) from new n group by n.queue, n.kind
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, batch_id, kind, scope, trace_id, before, after)
    select v_now, x.actor, x.action, x.reason, n.id, x.batch, n.kind, n.scope, n.trace_id, '{"state": "cancelled"}', '{"state": "queued"}'
    from new n join jsonb_to_recordset(p_moves) x(id uuid, actor text, action text, reason text, batch text) on x.id = n.id
    where x.actor is not null
  ), woken as (
    select redrive.wake(n.queue, min(n.position)) from new n group by n.queue
  )
  select coalesce(array_agg(n.id), '{}'), array_agg(n.join_id) filter (where n.join_id is not null),
    jsonb_agg(redrive.landing(n.id, 'cancelled', 'queued', n.kind, n.queue, n.attempt_count, n.max_attempts, n.replay_count,
      n.task_group, n.scope, n.trace_id, n.feature, n.facts)) filter (where n.feature is not null)
  into revived, v_joins, landed from new n cross join (select count(*) from woken) w;
  if v_joins is not null then
    perform redrive.arrive(v_joins, array_fill('cancelled'::redrive.state, array[cardinality(v_joins)]), null);
  end if;
end $$;


-- Settle and claim in one statement and one commit. A row without a kind names a settlement that lost its lease.
-- p_again: the answer to an earlier try was lost, so what landed then under the same token is not a loss.
create function redrive.cycle(
  p_ids uuid[], p_tokens uuid[], p_ms real[], p_results jsonb[], p_moves jsonb, p_again boolean,
  p_worker text, p_token uuid, p_lease double precision, p_want integer, p_queues text[], p_handles text[], p_only text,
  p_seg_queue text[], p_seg_lane text[], p_seg_priority integer[], p_seg_position bigint[], p_seg_until integer[],
  p_keep double precision[] default null
) returns setof redrive.claimed language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_done uuid[];
  v_held uuid[];
  v_tokens uuid[];
  v_limited boolean;
begin
  -- Before any row lock: whoever changes limits and holds takes this lock first, too.
  lock table redrive.move_lock in row share mode;
  v_limited := exists (select 1 from redrive.kind k where k.concurrency is not null);
  if p_ids is not null and p_moves is not null then
    -- Two statements that lock rows: all of them first, in order.
    v_held := p_ids || array(select x.id from jsonb_to_recordset(p_moves) x(id uuid));
    perform 1 from redrive.task t where t.id = any (v_held) order by t.id for update;
    if v_limited then
      perform 1 from redrive.kind k
      where k.concurrency is not null and k.kind = any (array(select t.kind from redrive.task t where t.id = any (v_held)))
      order by k.kind for update;
    end if;
    v_held := null;
  end if;
  if p_ids is not null then
    v_done := redrive.complete(p_ids, p_tokens, p_ms, p_results, p_keep);
    v_held := p_ids;
    v_tokens := p_tokens;
  end if;
  if p_moves is not null then
    select v_done || m.moved into v_done from redrive.move(p_moves) m;
    select v_held || array_agg(x.id), v_tokens || array_agg(x.token) into v_held, v_tokens
    from jsonb_to_recordset(p_moves) x(id uuid, token uuid);
  end if;
  if cardinality(v_held) > coalesce(cardinality(v_done), 0) then
    return query
    select u.id, null::text, null::text, null::text, null::smallint, null::bigint, null::jsonb, null::integer, null::integer,
      null::timestamptz, null::text, null::text, null::text, null::text, null::integer, null::jsonb, null::integer, null::text,
      null::uuid
    from unnest(v_held, v_tokens) u(id, token)
    where (v_done is null or u.id <> all (v_done)) and not (p_again and (redrive.landed(u.id, u.token)
      -- One that leaves nothing, and of which nothing is left, is completed, whoever did it.
      or (p_keep is not null and not redrive.is_kept(u.id)
        and exists (select 1 from unnest(p_ids, p_keep) k(id, keep) where k.id = u.id and k.keep = 0))));
  end if;
  if p_want > 0 then
    return query select * from redrive.claim(p_worker, p_token, p_lease, p_want, p_queues, p_handles, p_only,
      v_held is null or not v_limited, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until);
  end if;
end $$;

-- Is a task still to be found, live or finished? What belongs to it stays as long.
create function redrive.is_kept(p_task uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  select exists (select 1 from redrive.task t where t.id = p_task)
    or exists (select 1 from redrive.history h where h.id = p_task)
$$;

-- Did this token's holder commit something already? Only asked after a lost answer. What recovery did with an expired
-- lease is kept without its token: it is not what the holder asked for.
create function redrive.landed(p_id uuid, p_token uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  select exists (select 1 from redrive.history h where h.id = p_id and h.lease_token = p_token)
    or exists (select 1 from redrive.attempt a where a.task_id = p_id and a.lease_token = p_token)
    or exists (select 1 from redrive.task t where t.id = p_id and t.settled_token = p_token)
$$;

-- Heartbeat: extends leases, stores progress. Answers the ids still held.
create function redrive.renew(
  p_ids uuid[], p_tokens uuid[], p_lease double precision, p_progress_ids uuid[], p_progress jsonb[]
) returns uuid[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_held uuid[];
begin
  with held as (
    update redrive.task t set lease_expires_at = clock_timestamp() + make_interval(secs => p_lease)
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
    returning t.id
  )
  select array_agg(h.id) into v_held from held h;
  if p_progress_ids is not null then
    update redrive.task t set progress = u.progress
    from unnest(p_progress_ids, p_progress) u(id, progress)
    where t.id = any (p_progress_ids) and t.id = u.id and t.id = any (v_held);
  end if;
  return coalesce(v_held, '{}');
end $$;
