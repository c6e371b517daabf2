-- New joins. What has no members when its transaction ends has ended: "close_joins" sees to that. What is enqueued at the
-- end of one, and is a member of another, is so from now on: the other waits for it.
create or replace function redrive.open_joins(p_joins jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.task_join (id, created_at, is_open, on_complete, on_success)
  select x.id, clock_timestamp(), x.is_open, x.on_complete, x.on_success
  from jsonb_to_recordset(p_joins) x(id uuid, is_open boolean, on_complete jsonb, on_success jsonb);
  perform redrive.add_members(array(
    select (x.on_complete ->> 'join')::uuid from jsonb_to_recordset(p_joins) x(on_complete jsonb)
    where x.on_complete ->> 'join' is not null));
end $$;

-- Lock joins that get members in the order that all do: for transactions that add to several in several statements.
create or replace function redrive.hold_joins(p_adding uuid[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  perform 1 from redrive.task_join j where j.id = any (p_adding) order by j.id for update;
end $$;

-- Joins have more members: one for each time that they are named.
create or replace function redrive.add_members(p_joins uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
  v_n bigint;
begin
  for v_id, v_n in select u.id, count(*) from unnest(p_joins) u(id) group by u.id order by u.id loop
    update redrive.task_join j set total = j.total + v_n where j.id = v_id and (j.ended_at is null
      -- or somebody is at it again, who may need others for it
      or (j.succeeded_at is null and j.completed + j.failed + j.cancelled + (
        select coalesce(sum(d.completed + d.failed + d.cancelled), 0) from redrive.join_delta d where d.join_id = v_id) < j.total));
    if not found then
      raise exception 'join % takes no members: it has ended, or there is none', v_id using
        errcode = 'invalid_parameter_value',
        hint = 'a task adds members to its own join before it ends; open a new one otherwise';
    end if;
  end loop;
end $$;

-- Members of joins went from one state to another: only those in which a task has ended count. p_was null: from none.
-- Nobody waits for a join here: where somebody holds it, a handler's transaction perhaps for long, and where it is large, the
-- change is appended, and "fold" adds it up.
create or replace function redrive.arrive(p_joins uuid[], p_was redrive.state[], p_now redrive.state[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_changes jsonb;
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
  v_small := array(
    select j.id from redrive.task_join j
    where j.id = any (array(select c.id from jsonb_to_recordset(v_changes) c(id uuid))) and j.total <= 1000
    order by j.id for update skip locked);
  insert into redrive.join_delta (join_id, completed, failed, cancelled)
  select c.id, coalesce(c.completed, 0), coalesce(c.failed, 0), coalesce(c.cancelled, 0)
  from jsonb_to_recordset(v_changes) c(id uuid, completed bigint, failed bigint, cancelled bigint)
  join redrive.task_join j on j.id = c.id where j.id <> all (v_small);
  update redrive.task_join j set completed = j.completed + coalesce(c.completed, 0), failed = j.failed + coalesce(c.failed, 0),
    cancelled = j.cancelled + coalesce(c.cancelled, 0)
  from jsonb_to_recordset(v_changes) c(id uuid, completed bigint, failed bigint, cancelled bigint)
  where j.id = any (v_small) and c.id = j.id;
  perform redrive.end_joins(v_small);
end $$;

-- Members arrive whose features have reacted to their end: what those add comes first (see "move").
create or replace function redrive.arrive_now(p_members jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select redrive.arrive(array_agg(m.id), array_agg(m.was), array_agg(m.now))
  from jsonb_to_recordset(p_members) m(id uuid, was redrive.state, now redrive.state)
$$;

-- Where the last member has come, enqueue what follows. The rows of these joins are locked, or are so from here on.
create or replace function redrive.end_joins(p_ids uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_join record;
  v_task jsonb;
  v_fault text;
  v_conflict boolean;
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
      v_fault := null;
      v_conflict := false;
      -- Checked when the join was opened. What is refused all the same must not hold up the member that came last, nor others.
      begin
      select a.conflict into v_conflict from redrive.add(array[(v_task ->> 'id')::uuid], array[v_task ->> 'kind'], array[v_task ->> 'queue'],
        array[(v_task ->> 'payload')::jsonb], array[(v_task ->> 'priority')::integer],
        array[(v_task ->> 'max_attempts')::integer], array[(v_task ->> 'delay')::double precision], null,
        array[((v_task ->> 'timeout')::double precision * 1000)::integer], array[v_task ->> 'group'], array[v_task ->> 'scope'],
        array[v_task ->> 'trace_id'], array[v_task ->> 'idempotency_key'], false, array[v_task ->> 'feature'],
        array[(v_task ->> 'facts')::jsonb]) a;
      exception when data_exception or integrity_constraint_violation then
        -- Not what the server says, which may quote values.
        v_fault := case sqlstate when '23505' then 'its id is taken' else format('the store refused it (%s)', sqlstate) end;
      end;
      if v_conflict then v_fault := 'its idempotency key names other work'; end if;
      if v_fault is not null then
        update redrive.task_join j set fault = format('%s was not enqueued: %s', v_task ->> 'kind', v_fault) where j.id = v_join.id;
      end if;
      if v_task ->> 'join' is not null then
        -- A member since this join was opened. If its key names other work, nobody will arrive for it.
        update redrive.task t set join_id = (v_task ->> 'join')::uuid where t.id = (v_task ->> 'id')::uuid;
        if not found then
          perform redrive.arrive(array[(v_task ->> 'join')::uuid], null, array['cancelled'::redrive.state]);
        end if;
      end if;
    end loop;
  end loop;
end $$;

-- No further members.
create or replace function redrive.close_joins(p_ids uuid[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_there uuid[];
begin
  v_there := array(select j.id from redrive.task_join j where j.id = any (p_ids) order by j.id for update);
  if not p_ids <@ v_there then
    raise exception 'there is no join %', (select u.id from unnest(p_ids) u(id) where u.id <> all (v_there) limit 1) using
      errcode = 'invalid_parameter_value';
  end if;
  update redrive.task_join j set is_open = false where j.id = any (p_ids) and j.is_open;
  perform redrive.end_joins(p_ids);
end $$;
