-- Rows that cannot be worked with: from before a limit, or put there by hand past all checks. One such row must never stop
-- the others, so it is found, made usable and failed by itself. Nothing of this runs unless a statement over many rows was
-- refused for what is in one of them.

create or replace function redrive.cut(p_value text, p_bytes integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when octet_length(p_value) between 1 and p_bytes then p_value
    when p_value is not null then left(p_value, p_bytes / 4 - 9) || '~' || left(md5(p_value), 8) end
$$;

create or replace function redrive.usable_time(p_at timestamptz, p_else timestamptz) returns timestamptz
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_at between '0100-01-01+00' and '9900-01-01+00' then p_at when p_at is not null then p_else end
$$;

-- What every reader asks for, as text; null when that is impossible, or more than anybody can hold.
create or replace function redrive.usable_json(p_value jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  return case when octet_length(p_value::text) <= 67108864 then p_value end;
exception when others then
  return null;
end $$;

-- Why a live row cannot be moved or read; null when it can. Whatever is tried is taken back.
create or replace function redrive.trial(p_id uuid) returns text
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_why text;
begin
  select case
    when (t.payload is not null and redrive.usable_json(t.payload) is null)
      or (t.memo is not null and redrive.usable_json(t.memo) is null) then 'its payload cannot be read'
    when octet_length(t.payload::text) > 1048576 then 'its payload is over the limit of 1,048,576 bytes'
    when exists (select 1 from unnest(array[t.created_at, t.run_at, t.next_attempt_at, t.last_attempt_at]) u(at)
      where u.at is not null and redrive.usable_time(u.at, null) is null) then 'one of its times is out of range' end
  into v_why from redrive.task t where t.id = p_id;
  if v_why is not null then return v_why; end if;
  begin
    -- As a promotion, a claim and a held group would have it.
    update redrive.task t set state = 'queued', lease_token = null, lane = '' where t.id = p_id;
    insert into redrive.kind (kind) select t.kind from redrive.task t where t.id = p_id on conflict do nothing;
    update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = gen_random_uuid(),
      lease_expires_at = clock_timestamp(), worker_id = '-' where t.id = p_id;
    update redrive.task t set state = 'paused', lease_token = null, paused_by = 'group:' || t.task_group where t.id = p_id;
    raise exception using errcode = 'RD000';
  exception
    when sqlstate 'RD000' then return null;
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then return sqlerrm;
  end;
end $$;

-- Rows that claims and ticks of these queues meet first, and that cannot be worked with. Rows that others have locked are
-- theirs to find.
create or replace function redrive.suspects(p_queues text[], p_limit integer) returns table (id uuid, why text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
begin
  for v_id in
    select t.id from redrive.task t where t.id = any (array(
      select r.id from unnest(p_queues) q(queue)
      cross join (select '' as lane union all select k.kind from redrive.kind k) l
      cross join lateral (
        select c.id from redrive.task c where c.state = 'queued' and c.queue = q.queue and c.lane = l.lane
        order by c.priority, c.position limit p_limit) r
      union all
      select r.id from unnest(p_queues) q(queue) cross join lateral (
        select c.id from redrive.task c
        where c.state = 'delayed' and c.queue = q.queue and c.next_attempt_at <= clock_timestamp()
        order by c.next_attempt_at limit p_limit) r
      union all
      select r.id from redrive.resuming g cross join lateral (
        select c.id from redrive.task c where c.state = 'paused' and c.task_group = g.task_group limit p_limit) r))
    for update skip locked
  loop
    why := redrive.trial(v_id);
    if why is not null then
      id := v_id;
      return next;
    end if;
  end loop;
end $$;

-- Make a row one that every statement can work with. What fits is kept; what does not is cut, and ends in "~" and a digest.
-- Returns whether its feature is among p_features, so that it may be failed; of a task that is to run still, no payload goes.
create or replace function redrive.mend(p_id uuid, p_features text[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_queue text;
  v_kind text;
  v_state redrive.state;
  v_known boolean;
begin
  lock table redrive.move_lock in row share mode;
  select t.queue::text, t.kind::text, t.state, t.feature is null or t.feature = any (p_features)
  into v_queue, v_kind, v_state, v_known from redrive.task t where t.id = p_id for update;
  if not found then return true; end if;
  update redrive.task t set
    kind = redrive.cut(t.kind, 120), queue = redrive.cut(t.queue, 120), lane = '',
    task_group = redrive.cut(t.task_group, 1536), scope = redrive.cut(t.scope, 1536),
    trace_id = redrive.cut(t.trace_id, 1536), trace_parent = null, idempotency_key = redrive.cut(t.idempotency_key, 1536),
    worker_id = redrive.cut(t.worker_id, 1536), last_replayed_bulk_id = redrive.cut(t.last_replayed_bulk_id, 1536),
    error_code = redrive.cut(t.error_code, 200), error_reason = redrive.cut(t.error_reason, 200),
    error_fingerprint = redrive.cut(t.error_fingerprint, 200),
    max_attempts = least(greatest(t.max_attempts, 1), 1000000),
    attempt_count = least(greatest(t.attempt_count, 0), least(greatest(t.max_attempts, 1), 1000000)),
    timeout_ms = case when t.timeout_ms between 1 and 2000000000 then t.timeout_ms end,
    created_at = redrive.usable_time(t.created_at, v_now), run_at = redrive.usable_time(t.run_at, v_now),
    next_attempt_at = redrive.usable_time(t.next_attempt_at, v_now),
    last_attempt_at = redrive.usable_time(t.last_attempt_at, v_now),
    lease_token = case when t.state = 'running' then coalesce(t.lease_token, gen_random_uuid()) end,
    lease_expires_at = redrive.usable_time(t.lease_expires_at, v_now),
    memo = redrive.usable_json(t.memo), progress = redrive.usable_json(t.progress)
  where t.id = p_id;
  if v_known and (select t.payload is not null and redrive.usable_json(t.payload) is null from redrive.task t where t.id = p_id) then
    update redrive.task t set payload = jsonb_build_object('unreadable', 'the payload could not be read, and was removed')
    where t.id = p_id;
  end if;
  -- Counted under its new names from here on.
  insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed)
  select x.queue, x.kind, case when v_state = 'queued' then x.n else 0 end, case when v_state = 'delayed' then x.n else 0 end,
    case when v_state = 'running' then x.n else 0 end, case when v_state = 'paused' then x.n else 0 end,
    case when v_state = 'failed' then x.n else 0 end
  from (
    select v_queue as queue, v_kind as kind, -1 as n
    union all select t.queue, t.kind, 1 from redrive.task t where t.id = p_id) x
  where exists (select 1 from redrive.task t where t.id = p_id and (t.queue, t.kind) <> (v_queue, v_kind));
  return v_known;
end $$;
