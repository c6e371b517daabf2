-- Whether a probe may start of an open circuit: its time has come, and the last one has ended, whatever became of it.
create or replace function redrive.may_probe(p_until timestamptz, p_probe uuid, p_token uuid) returns boolean
language sql volatile as $$
  select p_until <= pg_catalog.clock_timestamp() and not exists (
    select 1 from redrive.task t
    where t.id operator(pg_catalog.=) p_probe and t.state operator(pg_catalog.=) 'running'
      and t.lease_token operator(pg_catalog.=) p_token)
$$;

-- The open circuits of these kinds that let a probe start, locked. Who finds one locked passes it by: somebody else is
-- about to start its probe, or to close it.
create or replace function redrive.lock_probes(p_kinds text[]) returns text[]
language plpgsql as $$
declare
  v_names text[];
begin
  v_names := array(
    select c.name from redrive.circuit c
    where c.name in (select k.circuit from redrive.kind k where k.kind = any (p_kinds) and k.circuit is not null)
    order by c.name for update skip locked);
  -- Once more, with a snapshot taken after the lock: a probe may have been started while this one waited for its turn.
  return array(
    select c.name from redrive.circuit c where c.name = any (v_names) and redrive.may_probe(c.until, c.probe, c.token));
end $$;

-- Opens, closes or changes a circuit that nobody else changed since it was read; false if somebody did. p_wait: seconds
-- until a probe, null leaves that as it is.
create or replace function redrive.set_circuit(
  p_name text, p_version integer, p_kinds text[], p_open boolean, p_wait double precision, p_reason text, p_actor text,
  p_failed_probes integer, p_opened bigint
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_until constant timestamptz := v_now + make_interval(secs => p_wait);
  v_changed integer;
begin
  -- Waits for claims in flight, as a pause does: none starts a task after this returned.
  lock table redrive.move_lock in exclusive mode;
  if p_version = 0 then
    insert into redrive.circuit (name, version, kinds, open, since, until, reason, actor, failed_probes, opened)
    values (p_name, 1, p_kinds, p_open, v_now, v_until, p_reason, p_actor, p_failed_probes, p_opened) on conflict do nothing;
  else
    update redrive.circuit c set version = c.version + 1, kinds = p_kinds, open = p_open,
      since = case when c.open = p_open then c.since else v_now end,
      until = case when p_open then coalesce(v_until, c.until) end, reason = p_reason, actor = p_actor,
      failed_probes = p_failed_probes, opened = p_opened,
      token = case when p_open and coalesce(p_wait, 0) = 0 then c.token end
    where c.name = p_name and c.version = p_version;
  end if;
  get diagnostics v_changed = row_count;
  if v_changed = 0 then return false; end if;
  if p_open then
    insert into redrive.kind (kind) select distinct k from unnest(p_kinds) k on conflict do nothing;
  end if;
  update redrive.kind k set circuit = case when p_open and k.kind = any (p_kinds) then p_name end
  where k.circuit = p_name or (p_open and k.kind = any (p_kinds));
  if not p_open or p_wait = 0 then perform pg_notify('redrive', 'ready * 0'); end if;
  return true;
end $$;
