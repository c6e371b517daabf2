-- Heartbeat: extends leases, stores progress. It waits for nobody: a settlement holds its rows until it has got what it waits
-- for, and all other leases would run out meanwhile. "missed": those whose row somebody else is at; nobody can take them from
-- their worker without that row.
create or replace function redrive.renew(
  p_ids uuid[], p_tokens uuid[], p_lease double precision, p_progress_ids uuid[], p_progress jsonb[], out renewed uuid[],
  out missed uuid[]
) language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  with free as materialized (
    select t.id from redrive.task t
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
    for no key update skip locked
  ), extended as (
    update redrive.task t set lease_expires_at = clock_timestamp() + make_interval(secs => p_lease)
    where t.id = any (array(select f.id from free f)) returning t.id
  )
  select coalesce(array_agg(e.id), '{}') into renewed from extended e;
  missed := '{}';
  if cardinality(renewed) < cardinality(p_ids) then
    missed := array(
      select t.id from redrive.task t
      where t.id = any (p_ids) and t.id <> all (renewed)
        and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true);
  end if;
  if p_progress_ids is not null then
    update redrive.task t set progress = u.progress
    from unnest(p_progress_ids, p_progress) u(id, progress)
    where t.id = any (p_progress_ids) and t.id = u.id and t.id = any (renewed);
  end if;
end $$;
