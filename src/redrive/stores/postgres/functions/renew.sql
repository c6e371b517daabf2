-- Heartbeat: extends leases, stores progress. Returns the ids whose lease is not lost.
create or replace function redrive.renew(
  p_ids uuid[], p_tokens uuid[], p_lease double precision, p_progress_ids uuid[], p_progress jsonb[]
) returns uuid[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_renewed uuid[];
begin
  with renewed as (
    update redrive.task t set lease_expires_at = clock_timestamp() + make_interval(secs => p_lease)
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
    returning t.id
  )
  select array_agg(h.id) into v_renewed from renewed h;
  if p_progress_ids is not null then
    update redrive.task t set progress = u.progress
    from unnest(p_progress_ids, p_progress) u(id, progress)
    where t.id = any (p_progress_ids) and t.id = u.id and t.id = any (v_renewed);
  end if;
  return coalesce(v_renewed, '{}');
end $$;
