-- Settle and claim in one statement and one commit. A row without a kind names a settlement that lost its lease, or, where
-- its queue is a state, one that led there instead.
-- p_again: the answer to an earlier try was lost, so what landed then under the same token is not a loss.
create or replace function redrive.cycle(
  p_ids uuid[], p_tokens uuid[], p_ms real[], p_results jsonb[], p_moves jsonb, p_again boolean,
  p_worker text, p_token uuid, p_lease double precision, p_want integer, p_queues text[], p_handles text[], p_only text,
  p_seg_queue text[], p_seg_lane text[], p_seg_priority integer[], p_seg_position bigint[], p_seg_until integer[],
  p_keep double precision[] default null
) returns setof redrive.claimed language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_done uuid[];
  v_ids uuid[];
  v_tokens uuid[];
  v_limited boolean;
  v_instead jsonb;
begin
  -- Before any row lock: whoever changes limits and holds takes this lock first, too.
  lock table redrive.move_lock in row share mode;
  v_limited := exists (select 1 from redrive.kind k where k.concurrency is not null);
  if p_ids is not null and p_moves is not null then
    -- Two statements that lock rows: all of them first, in order.
    v_ids := p_ids || array(select x.id from jsonb_to_recordset(p_moves) x(id uuid));
    perform 1 from redrive.task t where t.id = any (v_ids) order by t.id for update;
    if v_limited then
      perform 1 from redrive.kind k
      where k.concurrency is not null and k.kind = any (array(select t.kind from redrive.task t where t.id = any (v_ids)))
      order by k.kind for update;
    end if;
    v_ids := null;
  end if;
  if p_ids is not null then
    v_done := redrive.complete(p_ids, p_tokens, p_ms, p_results, p_keep);
    v_ids := p_ids;
    v_tokens := p_tokens;
  end if;
  if p_moves is not null then
    select v_done || m.moved, m.instead into v_done, v_instead from redrive.move(p_moves) m;
    select v_ids || array_agg(x.id), v_tokens || array_agg(x.token) into v_ids, v_tokens
    from jsonb_to_recordset(p_moves) x(id uuid, token uuid);
  end if;
  if v_instead is not null then
    return query
    select i.key::uuid, null::text, i.value, null::text, null::smallint, null::bigint, null::jsonb, null::integer, null::integer,
      null::timestamptz, null::text, null::text, null::text, null::text, null::integer, null::jsonb, null::integer, null::text,
      null::uuid, null::double precision
    from jsonb_each_text(v_instead) i;
  end if;
  if cardinality(v_ids) > coalesce(cardinality(v_done), 0) then
    return query
    select u.id, null::text, null::text, null::text, null::smallint, null::bigint, null::jsonb, null::integer, null::integer,
      null::timestamptz, null::text, null::text, null::text, null::text, null::integer, null::jsonb, null::integer, null::text,
      null::uuid, null::double precision
    from unnest(v_ids, v_tokens) u(id, token)
    where (v_done is null or u.id <> all (v_done)) and not (p_again and (redrive.landed(u.id, u.token)
      -- One that leaves nothing, and of which nothing is left, is completed, whoever did it.
      or (p_keep is not null and not redrive.is_kept(u.id)
        and exists (select 1 from unnest(p_ids, p_keep) k(id, keep) where k.id = u.id and k.keep = 0))));
  end if;
  if p_want > 0 then
    return query select * from redrive.claim(p_worker, p_token, p_lease, p_want, p_queues, p_handles, p_only,
      v_ids is null or not v_limited, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until);
  end if;
end $$;

-- Was something committed under this token already? Only asked after a lost answer. What recovery did with an expired
-- lease is kept without its token: it is not what whoever had the lease asked for.
create or replace function redrive.landed(p_id uuid, p_token uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  select exists (select 1 from redrive.history h where h.id = p_id and h.lease_token = p_token)
    or exists (select 1 from redrive.attempt a where a.task_id = p_id and a.lease_token = p_token)
    or exists (select 1 from redrive.task t where t.id = p_id and t.settled_token = p_token)
$$;
