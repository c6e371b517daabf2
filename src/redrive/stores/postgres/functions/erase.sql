-- Whether the caller may erase: who administers; and workers, as long as an erasure that others decided on is under way, about this
-- scope where one is given.
create or replace function redrive.check_erases(p_scope text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() and not exists (
    select 1 from redrive.record r where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
      and (p_scope is null or r.body #>> '{which,scope}' = p_scope))
  then
    raise exception 'role % may not erase: no erasure is under way', redrive.caller() using
      errcode = 'insufficient_privilege', hint = 'an erasure is begun by the API''s role: redrive erase';
  end if;
end $$;

-- Whether such an erasure is about a row of the audit log: of its scope, of these tasks of it (p_ids), or quoting it.
create or replace function redrive.is_meant(p_row redrive.audit, p_ids uuid[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (
    select 1 from redrive.record r
    cross join lateral (select r.body #>> '{which,scope}' as scope,
      concat_ws(' ', p_row.reason, p_row.target, p_row.before, p_row.after) as words) e
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase' and (
      p_row.scope = e.scope or p_row.task_id = any (p_ids) or (r.body #> '{which,ids}') ? p_row.task_id::text
      or exists (select 1 from (select e.scope union all select jsonb_array_elements_text(r.body -> 'traces')) n(name)
        where p_row.reason = n.name or strpos(e.words, to_jsonb(n.name)::text) > 0
          or (length(n.name) >= 6 and (strpos(e.words, n.name) > 0 or strpos(e.words, btrim(to_jsonb(n.name)::text, '"')) > 0))
          or p_row.target = 'group:' || n.name)))
$$;

-- Which of these tasks an erasure that is under way is about: those that it names, those of its scope, and those that belong to something
-- of its scope, or to one of these. What belongs to what is asked of the functions whose comments begin with "For erasing:", which only
-- their owner can write. They get the scope, the tasks, and which of these are known to be meant.
create or replace function redrive.meant_tasks(p_ids uuid[]) returns uuid[]
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_own uuid[] := array(
    select u.id from unnest(p_ids) u(id), redrive.record r
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
      and ((r.body #> '{which,ids}') ? u.id::text
        or exists (select 1 from redrive.task t where t.id = u.id and t.scope = r.body #>> '{which,scope}')
        or exists (select 1 from redrive.history h where h.id = u.id and h.scope = r.body #>> '{which,scope}')
        or exists (select 1 from redrive.dead_letter d where d.task_id = u.id and d.scope = r.body #>> '{which,scope}')));
  v_scope text;
  v_function text;
  v_more uuid[];
begin
  for v_scope, v_function in
    select r.body #>> '{which,scope}', p.oid::regproc::text from generate_series(1, 2) pass, redrive.record r, pg_proc p
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase' and r.body #>> '{which,scope}' is not null
      and p.pronamespace = 'redrive'::regnamespace and starts_with(obj_description(p.oid, 'pg_proc'), 'For erasing:')
    order by pass, p.proname
  loop
    if not p_ids <@ v_own then
      execute format('select array(select x from %s($1, $2, $3) x)', v_function) into v_more using v_scope, p_ids, v_own;
      v_own := v_own || array(select u.id from unnest(p_ids) u(id) where u.id = any (v_more) and u.id <> all (v_own));
    end if;
  end loop;
  return v_own;
end $$;

-- Personal data goes: of finished tasks what they carried, of their attempts and dead letters what was said, their keys, and
-- rows of the audit log but for a digest (p_telling: and for what they tell of removals). Live tasks among p_ids are left alone. Returns how many, by place.
create or replace function redrive.erase(p_ids uuid[], p_tombstone text, p_audit bigint[], p_digests text[], p_scope text,
  p_holds jsonb, p_telling bigint[])
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_ids uuid[] := array(
    select u.id from unnest(p_ids) u(id) where not exists (select 1 from redrive.task t where t.id = u.id));
  v_keys text[] := array(
    select h.idempotency_key from redrive.history h where h.id = any (v_ids) and h.idempotency_key is not null);
  v_gone uuid[] := array(
    select u.id from unnest(v_ids) u(id) where not exists (select 1 from redrive.history h where h.id = u.id));
  v_n integer;
  v_more integer := 0;
  v_done jsonb := '{}';
  v_any constant boolean := redrive.administers();
  v_own uuid[];
begin
  perform redrive.check_erases(p_scope);
  if not v_any then
    v_own := redrive.meant_tasks(p_ids);
    v_ids := array(select u.id from unnest(v_ids) u(id) where u.id = any (v_own));
    v_keys := array(
      select h.idempotency_key from redrive.history h where h.id = any (v_ids) and h.idempotency_key is not null);
    v_gone := array(select u.id from unnest(v_gone) u(id) where u.id = any (v_own));
  end if;
  update redrive.history h set payload = null, result = null, cancel_reason = null, trace_id = null, trace_parent = null, task_group = null,
    idempotency_key = null, facts = null, scope = case when h.scope is null then null else p_tombstone end,
    erased_at = clock_timestamp()
  where h.id = any (v_ids) and h.erased_at is null;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('tasks', v_n);
  update redrive.attempt a set message = 'erased', stack = null, error_summary = null, peer = null
  where a.task_id = any (v_ids) and (a.message <> 'erased' or a.stack is not null or a.error_summary is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('attempts', v_n);
  update redrive.dead_letter d set payload = null, error_message = 'erased', error_summary = null, task_group = null,
    trace_id = null, scope = case when d.scope is null then null else p_tombstone end
  where d.task_id = any (v_ids) and (d.error_message <> 'erased' or d.payload is not null
    or d.error_summary is not null or d.scope is distinct from p_tombstone);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('dead_letters', v_n);
  -- A key may name another task by now.
  delete from redrive.idempotency_key k where k.key = any (v_keys) and k.task_id = any (v_ids);
  get diagnostics v_n = row_count;
  if cardinality(v_gone) > 0 then  -- there is no index of this, because keys are written with tasks
    delete from redrive.idempotency_key k where k.task_id = any (v_gone);
    get diagnostics v_more = row_count;
  end if;
  v_done := v_done || jsonb_build_object('keys', v_n + v_more);
  update redrive.failure_delta d set message = 'erased', error_summary = null, sample_scope = null
  where (d.sample_task = any (v_ids) or d.sample_scope = p_scope)
    and (d.message <> 'erased' or d.sample_scope is not null);
  get diagnostics v_more = row_count;
  update redrive.failure_group g set message = 'erased', error_summary = null, sample_scope = null
  where (g.sample_task = any (v_ids) or g.sample_scope = p_scope)
    and (g.message <> 'erased' or g.sample_scope is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('causes', v_n + v_more);
  v_n := redrive.erase_callbacks(p_scope);
  v_done := v_done || jsonb_build_object('joins', v_n);
  update redrive.hold h set reason = 'erased'
  from jsonb_array_elements(p_holds) x(hold) where h.target = x.hold ->> 0 and h.name = x.hold ->> 1;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('holds', v_n);
  update redrive.audit a set reason = null, target = null, scope = null, trace_id = null, before = null, salt = null,
    after = case when a.id = any (p_telling) then a.after end, erased = u.digest
  from unnest(p_audit, p_digests) u(id, digest) where a.id = u.id and a.erased is null
    and (v_any or redrive.is_meant(a, v_own));
  get diagnostics v_n = row_count;
  return v_done || jsonb_build_object('audit', v_n);
end $$;

-- Why circuits were opened and workers told to drain, where somebody wrote the scope into it. A short scope is looked for as
-- the whole text only: inside of sentences it would be found everywhere. Returns how many.
create or replace function redrive.erase_reasons(p_scope text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_circuits integer;
  v_workers integer;
begin
  perform redrive.check_erases(p_scope);
  update redrive.circuit c set reason = 'erased' where c.reason = p_scope or (length(p_scope) >= 6 and strpos(c.reason, p_scope) > 0);
  get diagnostics v_circuits = row_count;
  update redrive.worker w set drain_reason = 'erased' where w.drain_reason = p_scope or (length(p_scope) >= 6 and strpos(w.drain_reason, p_scope) > 0);
  get diagnostics v_workers = row_count;
  return v_circuits + v_workers;
end $$;

-- What is enqueued at the end of joins, and is about this scope, goes; who waits for it does not wait for ever. Returns how many.
create or replace function redrive.erase_callbacks(p_scope text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_n integer;
  v_outer uuid[] := array(
    select (j.on_complete ->> 'join')::uuid from redrive.task_join j
    where j.on_complete ->> 'scope' = p_scope and j.on_complete ->> 'join' is not null);
begin
  perform redrive.check_erases(p_scope);
  update redrive.task_join j set on_complete = case when j.on_complete ->> 'scope' is distinct from p_scope then j.on_complete end,
    on_success = case when j.on_success ->> 'scope' is distinct from p_scope then j.on_success end
  where j.on_complete ->> 'scope' = p_scope or j.on_success ->> 'scope' = p_scope;
  get diagnostics v_n = row_count;
  if cardinality(v_outer) > 0 then
    perform redrive.arrive(v_outer, null, array_fill('cancelled'::redrive.state, array[cardinality(v_outer)]));
  end if;
  return v_n;
end $$;
