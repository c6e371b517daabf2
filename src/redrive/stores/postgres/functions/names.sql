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

-- The same for a name that the producer's application declares, although no worker has said so yet. Who may announce it is taken at his word.
-- Others say what they like: each role that only enqueues has so many, and whatever one of them makes takes none from the others. They
-- are counted in parts, of which a transaction has one to itself: it gives back what it rolls back, and no transaction waits for another.
create or replace function redrive.declare_name(p_queue text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_most constant bigint := greatest(coalesce((select b.most from redrive.name_bound b), 1000), 1000) / 10;
  v_role text := '';
begin
  if redrive.is_declared(p_queue, p_kind) then
    perform redrive.admit_name(p_queue, p_kind);
    return;
  end if;
  if not redrive.announces() then
    lock table redrive.name_lock in row share mode;  -- until it is committed, nobody counts anew
    update redrive.name_allowance a set used = a.used + 1 from (
      select x.role, x.part from redrive.name_allowance x join pg_roles r on r.rolname = x.role
      where pg_has_role(redrive.caller(), r.oid, 'usage') and x.used < v_most
      order by x.role, x.part limit 1 for update of x skip locked) f
    where a.role = f.role and a.part = f.part returning a.role into v_role;
    if not found then
      perform redrive.admit_name(p_queue, p_kind);
      return;
    end if;
  end if;
  insert into redrive.used_name (queue, kind, declared, declared_by) values (p_queue, p_kind, true, v_role);
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

-- Names that nobody announced and that had no tasks for p_idle seconds are given back, and totals in which they count nothing but tasks that
-- were cancelled. Returns how many.
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
  update redrive.used_name n set declared_by = null where n.declared_by is not null and redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set declared = not n.declared where n.declared_by is null and n.declared <> redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set tasks = c.tasks, used_at = v_now
  from (
    select v.queue, v.kind, v.queued + v.delayed + v.running + v.paused + v.failed as live,
      v.queued + v.delayed + v.running + v.paused + v.failed + v.completed + v.cancelled as tasks
    from redrive.v_counts v) c
  where (n.declared_by is not null or not n.declared) and c.queue = n.queue and c.kind = n.kind
    and (c.tasks <> n.tasks or c.live > 0 and n.used_at < v_now - make_interval(secs => p_idle / 2));
  delete from redrive.used_name n where (n.declared_by is not null or not n.declared) and n.used_at < v_now - make_interval(secs => p_idle);
  get diagnostics v_gone = row_count;
  delete from redrive.total t
  where t.queued = 0 and t.delayed = 0 and t.running = 0 and t.paused = 0 and t.failed = 0 and t.completed = 0 and t.dead_letters = 0
    and not exists (select 1 from redrive.total_delta d where d.queue = t.queue and d.kind = t.kind)
    and not exists (select 1 from redrive.used_name n where n.queue = t.queue and n.kind = t.kind)
    and not redrive.is_declared(t.queue, t.kind);
  select count(*) into v_left from redrive.used_name n where not n.declared;
  perform setval('redrive.names', greatest(v_left, 1), v_left > 0);
  delete from redrive.name_allowance a where not exists (select 1 from pg_roles r where r.rolname = a.role);
  update redrive.name_allowance a set used = c.used from (
    select x.role, x.part, n.n / 10 + (x.part <= n.n % 10)::integer as used from redrive.name_allowance x cross join lateral (
      select count(*) as n from redrive.used_name u where u.declared_by = x.role) n) c
  where a.role = c.role and a.part = c.part and a.used <> c.used;
  return v_gone;
end $$;
