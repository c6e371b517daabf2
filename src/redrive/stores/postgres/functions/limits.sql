-- Frees places of limited kinds and wakes the fleet where a kind had been full. Locks are taken in one order: task rows
-- by id, then kind rows by name, each once per transaction; a claim that already holds kind rows waits for nothing.
create or replace function redrive.free_places(p_kinds text[]) returns void
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

-- What the fleet may do with a kind. p_actor null: a worker's configuration, which never overrides an operator.
create or replace function redrive.set_limit(p_kind text, p_concurrency integer, p_rate_ms integer, p_actor text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_old redrive.kind;
begin
  -- Twice: once to leave without the lock when there is nothing to do, and once to decide.
  for i in 1..2 loop
    select * into v_old from redrive.kind k where k.kind = p_kind;
    if found and v_old.concurrency is not distinct from p_concurrency and v_old.rate_ms is not distinct from p_rate_ms
      or (p_actor is null and v_old.actor is not null) then
      return false;
    end if;
    -- Claims in flight finish first; the next ones see the limit. So the count below misses nobody.
    if i = 1 then lock table redrive.move_lock in exclusive mode; end if;
  end loop;
  insert into redrive.kind as k (kind, concurrency, rate_ms, actor) values (p_kind, p_concurrency, p_rate_ms, p_actor)
  on conflict (kind) do update set concurrency = excluded.concurrency, rate_ms = excluded.rate_ms, actor = excluded.actor,
    next_at = case when excluded.rate_ms is null then null else k.next_at end;
  perform redrive.recount(p_kind);
  if p_actor is not null then
    insert into redrive.audit (at, actor, action, target, kind, before, after)
    values (clock_timestamp(), p_actor, 'KIND_LIMIT', 'kind:' || p_kind, p_kind,
      jsonb_build_object('concurrency', v_old.concurrency, 'rate_ms', v_old.rate_ms),
      jsonb_build_object('concurrency', p_concurrency, 'rate_ms', p_rate_ms));
  end if;
  perform pg_notify('redrive', 'ready * 0');
  return true;
end $$;

-- Count a limited kind's running tasks anew. With its row locked, whoever changes the number waits or is counted.
create or replace function redrive.recount(p_kind text) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_running integer;
  v_before integer;
begin
  select k.running into v_before from redrive.kind k where k.kind = p_kind for update;
  select count(*) into v_running from redrive.task t where t.state = 'running' and t.kind = p_kind;
  update redrive.kind k set running = v_running where k.kind = p_kind and k.running <> v_running;
  return v_running - v_before;
end $$;

-- Count all limited kinds anew; answers by how much the counters were wrong. Row and count are compared in one snapshot
-- and without a lock: the walk over the running tasks may be long when dead entries cannot be removed.
create or replace function redrive.recount() returns integer
language sql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select coalesce(sum(abs(redrive.recount(w.kind))), 0)::integer
  from (
    select k.kind from redrive.kind k
    left join (
      select t.kind, count(*) as n from redrive.task t where t.state = 'running' and t.lease_expires_at > '-infinity'
      group by t.kind) r on r.kind = k.kind
    where k.concurrency is not null and k.running <> coalesce(r.n, 0)
    order by k.kind
  ) w
$$;
