-- Is a task still to be found, live or finished? What belongs to it stays as long.
create or replace function redrive.is_kept(p_task uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  select exists (select 1 from redrive.task t where t.id = p_task)
    or exists (select 1 from redrive.history h where h.id = p_task)
$$;

-- Where the last piece ended; a day after its beginning a pass starts over, for tasks that have left meanwhile.
create or replace function redrive.prune_from(p_name text) returns redrive.pruned
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_from redrive.pruned;
begin
  insert into redrive.pruned (name, began) values (p_name, clock_timestamp()) on conflict do nothing;
  update redrive.pruned p set began = clock_timestamp(), at = default, seq = default, key = default
  where p.name = p_name and p.began < clock_timestamp() - interval '1 day';
  select * into v_from from redrive.pruned p where p.name = p_name for update;
  return v_from;
end $$;

-- A key is kept as long as its task is in the live table, however old.
create or replace function redrive.prune_keys(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('key');
begin
  with piece as materialized (
    select k.* from redrive.idempotency_key k
    where (k.created_at, k.key) > (v_from.at, v_from.key) and k.created_at < p_before
    order by k.created_at, k.key limit p_limit
  ), gone as (
    delete from redrive.idempotency_key ik where ik.key = any (array(
      select p.key from piece p where not exists (select 1 from redrive.task t where t.id = p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.created_at, key = p.key
    from (select x.created_at, x.key from piece x order by x.created_at desc, x.key desc limit 1) p where r.name = 'key'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- The failed attempts of a task stay as long as the task can be found.
create or replace function redrive.prune_attempts(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('attempt');
begin
  with piece as materialized (
    select a.seq, a.at, a.task_id from redrive.attempt a
    where (a.at, a.seq) > (v_from.at, v_from.seq) and a.at < p_before order by a.at, a.seq limit p_limit
  ), gone as (
    delete from redrive.attempt a where a.seq = any (array(
      select p.seq from piece p where not redrive.is_kept(p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.at, seq = p.seq
    from (select x.at, x.seq from piece x order by x.at desc, x.seq desc limit 1) p where r.name = 'attempt'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- A join is kept as long as one of its members is live, which may be retried and arrive again, or is the end of another join.
create or replace function redrive.prune_joins(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('join');
  v_after constant uuid := coalesce(nullif(v_from.key, ''), '00000000-0000-0000-0000-000000000000')::uuid;
begin
  with piece as materialized (
    select j.id, j.created_at, j.ended_at from redrive.task_join j
    where (j.created_at, j.id) > (v_from.at, v_after) and j.created_at < p_before order by j.created_at, j.id limit p_limit
  ), gone as (
    delete from redrive.task_join j where j.id = any (array(
      -- One that has not ended waits for somebody: whoever opened it closes it.
      select p.id from piece p where p.ended_at < p_before
        and p.id not in (select d.join_id from redrive.join_delta d)
        and not exists (select 1 from redrive.task t where t.join_id = p.id)
        and not exists (select 1 from redrive.task_join i where i.on_complete ->> 'join' = p.id::text)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.created_at, key = p.id::text
    from (select x.created_at, x.id from piece x order by x.created_at desc, x.id desc limit 1) p where r.name = 'join'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- In the order they were written, which is that of their times: no index by time has to be kept for it.
create or replace function redrive.prune_dead_letters(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('dead_letter');
begin
  removed := 0;
  more := false;
  if (select d.dead_at from redrive.dead_letter d where d.seq > v_from.seq order by d.seq limit 1) < p_before is not true then
    return;
  end if;
  with piece as materialized (
    select x.seq, x.task_id from (
      select d.seq, d.dead_at, d.task_id from redrive.dead_letter d where d.seq > v_from.seq order by d.seq limit p_limit) x
    where x.dead_at < p_before
  ), gone as (
    delete from redrive.dead_letter d where d.seq = any (array(
      select p.seq from piece p where not redrive.is_kept(p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set seq = (select max(p.seq) from piece p) where r.name = 'dead_letter'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- Causes by which nothing is failed any more, with their hours and what people said about them.
create or replace function redrive.prune_causes(p_before timestamptz, p_noted_before timestamptz, p_limit integer,
  out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('cause');
  v_gone text[];
begin
  with piece as materialized (
    select g.fingerprint, g.last_seen from redrive.failure_group g
    where (g.last_seen, g.fingerprint) > (v_from.at, v_from.key) and g.last_seen < p_before
    order by g.last_seen, g.fingerprint limit p_limit
  ), gone as (
    delete from redrive.failure_group g where g.fingerprint = any (array(
      select p.fingerprint from piece p
      where not exists (select 1 from redrive.failed_total t where t.fingerprint = p.fingerprint and t.n <> 0)
        and p.fingerprint not in (select d.fingerprint from redrive.failed_delta d)
        and p.fingerprint not in (select d.fingerprint from redrive.failure_delta d)
        and (p.last_seen < p_noted_before or not exists (
          select 1 from redrive.record r where r.collection = 'cause' and r.id = p.fingerprint))))
    returning g.fingerprint
  ), last as (
    update redrive.pruned r set at = p.last_seen, key = p.fingerprint
    from (select x.last_seen, x.fingerprint from piece x order by x.last_seen desc, x.fingerprint desc limit 1) p
    where r.name = 'cause'
  )
  select (select array_agg(g.fingerprint) from gone g), (select count(*) >= p_limit from piece) into v_gone, more;
  removed := coalesce(cardinality(v_gone), 0);
  if removed > 0 then
    delete from redrive.failure_hour h where h.fingerprint = any (v_gone);
    delete from redrive.record r where r.collection = 'cause' and r.id = any (v_gone);
  end if;
end $$;

-- What retention may remove in a worker's hands, whatever it was told to: nothing by which others are let in or what they did is
-- counted or proved, as long as that matters. See redrive.guard_record.
create or replace function redrive.prunable(p_record redrive.record) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case p_record.collection
    when 'access' then false
    when 'audit-seal' then false
    when 'alone' then p_record.expires_at < clock_timestamp()
    when 'session' then p_record.expires_at < clock_timestamp()
    when 'token' then p_record.state = 'revoked' and p_record.updated_at < clock_timestamp() - interval '1 day'
      and p_record.seq < (select max(t.seq) from redrive.record t where t.collection = 'token')
    when 'approval' then p_record.state <> 'pending' and p_record.updated_at < clock_timestamp() - interval '1 day'
    when 'operation' then p_record.state in ('completed', 'stopped', 'cancelled')
      and p_record.updated_at < clock_timestamp() - interval '1 day'
    else true end
$$;

-- Small documents: those that said themselves until when, and those of collections with a rule.
create or replace function redrive.prune_records(p_rules jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_any constant boolean := redrive.administers();
  v_rule record;
  v_n integer;
begin
  delete from redrive.record r where r.ctid = any (array(
    select x.ctid from redrive.record x where x.expires_at < v_now and (v_any or redrive.prunable(x))
    order by x.expires_at limit p_limit));
  get diagnostics removed = row_count;
  more := removed >= p_limit;
  for v_rule in
    select * from jsonb_to_recordset(p_rules) x(collection text, days double precision, states text[], keep_last boolean)
  loop
    delete from redrive.record r where r.ctid = any (array(
      select x.ctid from redrive.record x
      where x.collection = v_rule.collection and x.updated_at < v_now - make_interval(secs => v_rule.days * 86400)
        and (v_rule.states is null or x.state = any (v_rule.states))
        and (not v_rule.keep_last or x.seq < (
          select max(n.seq) from redrive.record n where n.collection = v_rule.collection))
        and (v_any or redrive.prunable(x))
      order by x.updated_at limit p_limit));
    get diagnostics v_n = row_count;
    removed := removed + v_n;
    more := more or v_n >= p_limit;
  end loop;
end $$;

-- The product's own time series, by the length of their rows; and sheets that nobody has added up for as long.
create or replace function redrive.prune_series(p_before jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_resolution text;
  v_n integer;
begin
  removed := 0;
  more := false;
  foreach v_resolution in array array['minute', 'hour', 'day'] loop
    delete from redrive.series s where s.ctid = any (array(
      select x.ctid from redrive.series x
      where x.resolution = v_resolution and x.at < (p_before ->> format('series_%s_days', v_resolution))::timestamptz
      order by x.at limit p_limit));
    get diagnostics v_n = row_count;
    more := more or v_n >= p_limit;
  end loop;
  delete from redrive.series_sheet s where s.at < (p_before ->> 'series_minute_days')::timestamptz;
end $$;

-- Remove what is past its keep (redrive.kernel.retention.Retention, as JSON). Bounded, so that it never holds locks for
-- long; "more" means "call again".
create or replace function redrive.prune(p_keep jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_before jsonb := (select jsonb_object_agg(k.key, v_now - make_interval(secs => k.value::double precision * 86400))
    from jsonb_each_text(p_keep - 'records') k);
  v_part record;
  v_hours integer;
  v_until timestamptz;
  v_full boolean;
  v_short integer;
begin
  delete from redrive.history_default h where h.ctid = any (array(
    select d.ctid from redrive.history_default d
    where d.finished_at < (v_before ->> 'history_days')::timestamptz order by d.finished_at limit p_limit));
  get diagnostics removed = row_count;
  more := removed >= p_limit;
  -- Kinds that say how long: up to the time of the last one of a piece, through the index of each day.
  select least(max(x.expires_at), v_now), count(*) >= p_limit into v_until, v_full from (
    select h.expires_at from redrive.history h
    where h.expires_at < v_now order by h.expires_at limit p_limit) x;
  if v_until is not null then
    delete from redrive.history h where h.expires_at <= v_until;
    get diagnostics v_short = row_count;
    removed := removed + v_short;
    more := more or v_full;
  end if;
  for v_part in
    select * from redrive.prune_keys((v_before ->> 'key_days')::timestamptz, p_limit)
    union all select * from redrive.prune_attempts((v_before ->> 'attempt_days')::timestamptz, p_limit)
    union all select * from redrive.prune_joins((v_before ->> 'history_days')::timestamptz, p_limit)
    union all select * from redrive.prune_dead_letters((v_before ->> 'dead_letter_days')::timestamptz, p_limit)
    union all select * from redrive.prune_causes((v_before ->> 'cause_days')::timestamptz,
      least((v_before ->> 'cause_days')::timestamptz, (v_before ->> 'noted_cause_days')::timestamptz), p_limit)
    union all select * from redrive.prune_records(p_keep -> 'records', p_limit)
    union all select * from redrive.prune_series(v_before, p_limit)
  loop
    removed := removed + v_part.removed;
    more := more or v_part.more;
  end loop;
  -- What became of a retry stays as long as its operation; of those that were none, as long as dead letters.
  delete from redrive.retry_total t where (t.bulk_id, t.outcome, t.cause) in (
    select x.bulk_id, x.outcome, x.cause from redrive.retry_total x
    where x.begun_at < (v_before ->> 'dead_letter_days')::timestamptz and not exists (
      select 1 from redrive.record r where r.collection = 'operation' and r.id = x.bulk_id)
    order by x.begun_at limit p_limit);
  delete from redrive.worker w where w.seen_at < (v_before ->> 'worker_days')::timestamptz;
  delete from redrive.failure_hour f where f.ctid = any (array(
    select x.ctid from redrive.failure_hour x
    where x.hour < (v_before ->> 'trend_days')::timestamptz order by x.hour limit p_limit));
  get diagnostics v_hours = row_count;
  more := more or v_hours >= p_limit;
end $$;
