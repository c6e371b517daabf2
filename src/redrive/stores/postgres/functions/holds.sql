-- Tasks of groups that are held no more, back to their queues: at most p_limit of each, one group after the other until
-- there were that many (or of p_group only). Answers how many it looked at: a full piece means "call again".
create or replace function redrive.resume_groups(p_limit integer, p_group text default null) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_group redrive.resuming;
  v_total integer := 0;
  v_looked integer;
  v_last uuid;
  v_wake jsonb;
begin
  for v_group in
    select * from redrive.resuming r where p_group is null or r.task_group = p_group
    order by r.task_group for update skip locked
  loop
    exit when v_total >= p_limit;
    with piece as materialized (
      select t.id from redrive.task t
      where t.state = 'paused' and t.task_group = v_group.task_group
        and t.id >= coalesce(v_group.after, '00000000-0000-0000-0000-000000000000') and t.id is distinct from v_group.after
      order by t.task_group, t.id limit p_limit
    ), mine as materialized (
      select t.id from redrive.task t
      where t.id = any (array(select p.id from piece p)) and (t.state = 'paused') is true
        and t.paused_by = 'group:' || v_group.task_group
      order by t.id for update skip locked
    ), back as (
      update redrive.task t set state = 'queued', position = m.position, paused_by = null,
        lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), '')
      from (select x.id, nextval('redrive.position') as position from mine x) m
      where t.id = m.id and t.id = any (array(select x.id from mine x))
      returning t.queue, t.kind, t.position
    ), tally as (
      insert into redrive.total_delta (queue, kind, queued, paused)
      select b.queue, b.kind, count(*), -count(*) from back b group by b.queue, b.kind
    )
    select (select count(*) from piece), (select p.id from piece p order by p.id desc limit 1),
      (select jsonb_object_agg(w.queue, w.position) from (
        select b.queue, min(b.position) as position from back b group by b.queue) w)
    into v_looked, v_last, v_wake;
    if v_wake is not null then
      perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
    end if;
    if v_looked >= p_limit then
      update redrive.resuming r set after = v_last where r.task_group = v_group.task_group;
    elsif exists (
      select 1 from redrive.task t
      where t.state = 'paused' and t.task_group = v_group.task_group and t.paused_by = 'group:' || v_group.task_group
    ) then
      -- Somebody had some of them locked: from the start again, with the next tick.
      update redrive.resuming r set after = null where r.task_group = v_group.task_group;
    else
      delete from redrive.resuming r where r.task_group = v_group.task_group;
    end if;
    v_total := v_total + v_looked;
  end loop;
  return v_total;
end $$;

-- For the rest of the caller's transaction nothing fails, and nothing is retried.
create or replace function redrive.stop_moves() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  lock table redrive.move_lock in exclusive mode;
end $$;

-- Pause or resume a queue, kind or group.
create or replace function redrive.set_hold(p_target text, p_name text, p_on boolean, p_actor text, p_reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_changed integer;
  v_now constant timestamptz := clock_timestamp();
begin
  -- Waits for claims in flight and keeps new ones out until this is committed: no task starts after a pause returned.
  lock table redrive.move_lock in exclusive mode;
  if p_on then
    insert into redrive.hold (target, name, actor, reason, at) values (p_target, p_name, p_actor, p_reason, v_now)
    on conflict do nothing;
    get diagnostics v_changed = row_count;
    if p_target = 'kind' then
      insert into redrive.kind (kind) values (p_name) on conflict do nothing;
    elsif p_target = 'group' then
      delete from redrive.resuming r where r.task_group = p_name;
    end if;
  else
    delete from redrive.hold h where h.target = p_target and h.name = p_name;
    get diagnostics v_changed = row_count;
    if p_target = 'group' then
      -- A small group is back at once; of a large one the ticks bring piece after piece, and nobody waits for it here.
      insert into redrive.resuming (task_group) values (p_name) on conflict do nothing;
      perform redrive.resume_groups(1000, p_name);
    end if;
    perform pg_notify('redrive', 'ready * 0');
  end if;
  if v_changed > 0 then
    insert into redrive.audit (at, actor, action, reason, target, kind, before, after)
    values (v_now, p_actor, upper(p_target) || case when p_on then '_PAUSE' else '_RESUME' end, p_reason,
      p_target || ':' || p_name, case when p_target = 'kind' then p_name end, jsonb_build_object('paused', not p_on), jsonb_build_object('paused', p_on));
  end if;
  return v_changed > 0;
end $$;
