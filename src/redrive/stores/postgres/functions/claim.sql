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
    ), retries as (
      insert into redrive.retry_delta (bulk_id, outcome, n)
      select p.last_replayed_bulk_id, 'running', count(*) from picked p where p.last_replayed_bulk_id is not null group by 1
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
      ), retries as (
        insert into redrive.retry_delta (bulk_id, outcome, n)
        select p.last_replayed_bulk_id, 'running', count(*) from picked p where p.last_replayed_bulk_id is not null group by 1
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
