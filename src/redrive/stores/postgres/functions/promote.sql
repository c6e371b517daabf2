-- Tasks of these queues whose time has come join the tail, in the order they were due. p_from: nothing due lies before it.
create or replace function redrive.promote(p_queues text[], p_from timestamptz, p_limit integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_promoted integer;
  v_wake jsonb;
begin
  with due as materialized (
    -- Chosen first and locked then: as many as are promoted, not as many for each queue.
    select l.at from (
      select r.at from unnest(p_queues) q(queue) cross join lateral (
        select d.ctid as at, d.next_attempt_at from redrive.task d
        where d.state = 'delayed' and d.queue = q.queue and d.next_attempt_at <= v_now
          and d.next_attempt_at >= coalesce(p_from, '-infinity')
        order by d.next_attempt_at limit p_limit) r
      order by r.next_attempt_at limit p_limit) c
    cross join lateral (
      select t.ctid as at from redrive.task t where t.ctid = c.at and (t.state = 'delayed') is true
      for update skip locked) l
  ), ready as (
    update redrive.task t set state = 'queued', position = r.position, next_attempt_at = null,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), '')
    from (select d.at, nextval('redrive.position') as position from due d) r
    where t.ctid = r.at
    returning t.queue, t.kind, t.position
  ), tally as (
    insert into redrive.total_delta (queue, kind, delayed, queued)
    select r.queue, r.kind, -count(*), count(*) from ready r group by r.queue, r.kind
  )
  select (select count(*) from ready), (select jsonb_object_agg(w.queue, w.position) from (
    select r.queue, min(r.position) as position from ready r group by r.queue) w)
  into v_promoted, v_wake;
  if v_wake is not null then
    perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
  end if;
  return v_promoted;
end $$;

-- The same for all queues, also those that no worker serves: what is due there is seen to be waiting.
create or replace function redrive.promote_everywhere(p_limit integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_queue text;
  v_queues text[] := '{}';
begin
  loop
    select t.queue into v_queue from redrive.task t
    where t.state = 'delayed' and t.queue > coalesce(v_queue, '') order by t.queue limit 1;
    exit when not found;
    v_queues := v_queues || v_queue;
  end loop;
  return redrive.promote(v_queues, null, p_limit);
end $$;
