-- Names: a kind in a queue, from its first enqueue on. Everything that looks at the fleet looks at each of them, so those that no application has
-- declared are bounded: else one producer could keep every worker busy with looking. "redrive.used_name" is read for each enqueue and written
-- for a new one alone. Its rows are not unique: whoever begins to use a name in a transaction that stays open holds up nobody.

-- Lets producers use a new name, or refuses it. The sequence counts those that nobody declared: no transaction waits for another, and no two
-- get the last place. What was counted and rolled back is given back by "lapse_names".
create or replace function redrive.admit_name(p_queue text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_most bigint;
begin
  if redrive.is_declared(p_queue, p_kind) then
    insert into redrive.used_name (queue, kind, declared) values (p_queue, p_kind, true);
    return;
  end if;
  lock table redrive.name_lock in row share mode;  -- until it is committed, nobody counts anew
  v_most := coalesce((select b.most from redrive.name_bound b), 1000);
  -- Looked at first, so that those that are refused do not count; two at once may see the same last place, and one of them gets it.
  if (select s.is_called and s.last_value >= v_most or v_most < 1 from redrive.names s) or nextval('redrive.names') > v_most then
    raise exception 'too many names: kind % in queue % would be one more than % that no application has declared', p_kind, p_queue, v_most using
      errcode = 'invalid_parameter_value',
      hint = 'start a worker whose application has the kind and serves the queue, or raise REDRIVE_MAX_NAMES for the workers; '
        'names that have no tasks any more are given back after a day';
  end if;
  insert into redrive.used_name (queue, kind, declared) values (p_queue, p_kind, false);
end $$;

create or replace function redrive.is_declared(p_queue text, p_kind text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select 1 from redrive.known_name k where k.what = 'queue' and k.name = p_queue)
    and exists (select 1 from redrive.known_name k where k.what = 'kind' and k.name = p_kind)
$$;

-- The same for a name that the producer's application declares, although no worker has said so yet. Producers say what they like, so these are
-- bounded too, ten times as wide: no application has so many.
create or replace function redrive.declare_name(p_queue text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_most constant bigint := greatest(10 * coalesce((select b.most from redrive.name_bound b), 1000), 10000);
begin
  if redrive.is_declared(p_queue, p_kind)
    or (select count(*) from (select 1 from redrive.used_name n where n.by_producer limit v_most) x) >= v_most then
    perform redrive.admit_name(p_queue, p_kind);
  else
    insert into redrive.used_name (queue, kind, declared, by_producer) values (p_queue, p_kind, true, true);
  end if;
end $$;

-- How often tasks are tried at most: a number below zero, or none, is what a producer expects who has no handler of the kind. That of
-- an application which has one and says how often goes before it.
create or replace function redrive.attempts_of(p_kind text, p_given integer) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when p_given > 0 then p_given else coalesce(
    (select k.max_attempts from redrive.known_name k where k.what = 'kind' and k.name = p_kind), -p_given, 5) end
$$;

-- What an application declares, how often it tries kinds that it handles (null: it does not say), and how many other names there may be.
-- Declared ones are never refused.
create or replace function redrive.know_names(p_queues text[], p_kinds text[], p_most bigint, p_attempts jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.known_name (what, name)
  select u.what, u.name from (
    select 'queue' as what, q.name from unnest(p_queues) q(name) union select 'kind', k.name from unnest(p_kinds) k(name)) u
  where not exists (select 1 from redrive.known_name k where k.what = u.what and k.name = u.name) order by 1, 2
  on conflict do nothing;
  update redrive.known_name k set max_attempts = a.value::integer from jsonb_each_text(p_attempts) a
  where k.what = 'kind' and k.name = a.key and k.max_attempts is distinct from a.value::integer;
  if p_most is null or exists (select 1 from redrive.name_bound b where b.most = p_most) then return; end if;
  insert into redrive.name_bound as b (one, most) values (true, p_most) on conflict (one) do update set most = excluded.most;
end $$;

-- Names that nobody declared and that had no tasks for p_idle seconds are given back. Returns how many.
create or replace function redrive.lapse_names(p_idle double precision) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_gone integer;
  v_left bigint;
begin
  begin
    lock table redrive.name_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- an open transaction has begun to use one: it would not be counted
  end;
  delete from redrive.used_name n using redrive.used_name m where m.queue = n.queue and m.kind = n.kind and m.ctid < n.ctid;
  update redrive.used_name n set by_producer = false where n.by_producer and redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set declared = not n.declared where not n.by_producer and n.declared <> redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set tasks = c.tasks, used_at = v_now
  from (
    select v.queue, v.kind, v.queued + v.delayed + v.running + v.paused + v.failed as live,
      v.queued + v.delayed + v.running + v.paused + v.failed + v.completed + v.cancelled as tasks
    from redrive.v_counts v) c
  where (n.by_producer or not n.declared) and c.queue = n.queue and c.kind = n.kind
    and (c.tasks <> n.tasks or c.live > 0 and n.used_at < v_now - make_interval(secs => p_idle / 2));
  delete from redrive.used_name n where (n.by_producer or not n.declared) and n.used_at < v_now - make_interval(secs => p_idle);
  get diagnostics v_gone = row_count;
  select count(*) into v_left from redrive.used_name n where not n.declared;
  perform setval('redrive.names', greatest(v_left, 1), v_left > 0);
  return v_gone;
end $$;
