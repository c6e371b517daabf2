-- Who runs tasks does not say who may operate. Those who may call redrive.administer(), which grant_api lets, write tokens,
-- sessions, approvals, and what is counted for whom acts alone. Workers close requests that nobody decided in time, drive
-- operations that others began, and clean what quotes somebody who is erased. What waits for a decision stays as it was asked for,
-- to the letter: whoever decides agrees to what they read. An operation that workers begin themselves is the application's or
-- redrive's own, never a person's. What is past its keep they remove, by redrive.prune.
create or replace function redrive.only_erased(p_old jsonb, p_new jsonb) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_escape constant text := '([^[:alnum:]])';
begin
  if p_old is not distinct from p_new then return true; end if;
  if p_old is null or p_new is null or jsonb_typeof(p_old) <> jsonb_typeof(p_new) then return false; end if;
  return case jsonb_typeof(p_old)
    -- The tombstone of an erasure that is under way stands where its scope was, or a trace of it, and nothing else has changed.
    when 'string' then exists (
      select 1 from redrive.record r
      cross join lateral (select 'erased:' || right(r.id, 12) as tombstone, (
        select string_agg(regexp_replace(n.name, v_escape, '\\\1', 'g'), '|') from (
          select r.body #>> '{which,scope}' as name union all select jsonb_array_elements_text(r.body -> 'traces')) n) as names) e
      where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
        and r.body #>> '{which,scope}' <> 'erased' and strpos(p_new #>> '{}', e.tombstone) > 0
        and p_old #>> '{}' ~ ('^' || (
          select string_agg(regexp_replace(u.part, v_escape, '\\\1', 'g'), '(?:' || e.names || ')' order by u.nth)
          from unnest(string_to_array(p_new #>> '{}', e.tombstone)) with ordinality u(part, nth)) || '$'))
    when 'array' then jsonb_array_length(p_old) = jsonb_array_length(p_new) and not exists (
      select 1 from generate_series(0, jsonb_array_length(p_old) - 1) i where not redrive.only_erased(p_old -> i, p_new -> i))
    when 'object' then not exists (select 1 from jsonb_object_keys(p_old || p_new) k
      where not (p_old ? k and p_new ? k) or not redrive.only_erased(p_old -> k, p_new -> k))
    else false end;
end $$;

create or replace function redrive.guard_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_collection text := case when tg_op = 'DELETE' then old.collection else new.collection end;
  -- How far an operation has come is its worker's to say.
  v_free text[] := case v_collection when 'operation' then array['total', 'cursor', 'last', 'round', 'phase', 'place', 'done',
    'skipped', 'canary', 'fingerprints', 'note', 'erased', 'traces', 'last_piece', 'driver'] else array[]::text[] end;
  v_old jsonb;
  v_new jsonb;
  v_allowed boolean := false;
begin
  if redrive.administers() then
    v_allowed := true;
  elsif tg_op = 'INSERT' then
    v_allowed := v_collection = 'audit-seal' or (v_collection = 'operation' and new.state <> 'waiting'
      and new.body ->> 'approval' is null and new.body ->> 'action' in ('retry', 'forget', 'cancel', 'work')
      and (new.body ->> 'actor' in ('app', 'redrive') or new.body ->> 'actor' like 'redrive:%'));
  elsif tg_op = 'DELETE' then
    v_allowed := redrive.prunable(old);
  elsif old.collection = new.collection and v_collection in ('approval', 'operation') then
    v_old := old.body - v_free;
    v_new := new.body - v_free;
    if old.state <> new.state and v_collection = 'approval' and new.body ->> 'decided_by' = 'redrive'
      and new.body ->> 'decision' = new.state
    then
      v_old := v_old - array['decided_by', 'decision', 'decision_reason'];
      v_new := v_new - array['decided_by', 'decision', 'decision_reason'];
    end if;
    if v_collection = 'operation' then
      if new.body ->> 'action' = 'erase' and new.body -> 'which' = '{"scope": "erased"}' then
        v_old := v_old - 'which';  -- an erasure that has done its work does not say either whom it was about
        v_new := v_new - 'which';
      end if;
      -- Before the first release the fields of all actions stood side by side: those that say nothing go, and what a purge or a
      -- cancel is about has another name.
      if v_old ?& array['archive', 'given_up_until'] then
        if v_new -> 'until' = v_old -> 'upto' then
          v_old := v_old - 'upto';
          v_new := v_new - 'until';
        end if;
        v_old := v_old - array(select k from unnest(array['upto', 'stop_on_return', 'plan', 'archive', 'letters', 'cancelled',
          'given_up_until']) k where not v_new ? k and v_old -> k in ('0', 'false', 'null'));
      end if;
      if v_old ? 'work' and v_new ? 'work' then
        v_old := jsonb_set(v_old, '{work}', (v_old -> 'work') - array['state', 'result']);
        v_new := jsonb_set(v_new, '{work}', (v_new -> 'work') - array['state', 'result']);
      end if;
    end if;
    v_allowed := old.id = new.id and old.seq = new.seq and old.created_at = new.created_at
      and new.updated_at > clock_timestamp() - interval '1 minute' and new.version = old.version + 1
      and case
        when old.state = new.state and old.state in ('pending', 'waiting') then
          old.body = new.body and old.expires_at is not distinct from new.expires_at
        when old.state = new.state then true
        when v_collection = 'approval' then old.state = 'pending' and new.state in ('expired', 'withdrawn')
        when old.state = 'waiting' then new.state = 'cancelled'
        else new.state <> 'waiting' and old.state not in ('completed', 'stopped', 'cancelled') end
      -- By its traces an erasure finds what quotes somebody: those of tasks that were there before it began, and no other words.
      and not exists (select 1 from jsonb_array_elements_text(case when jsonb_typeof(new.body -> 'traces') = 'array' then new.body -> 'traces' end) n(name)
        where coalesce(old.body -> 'traces' ? n.name, false) is false
          and not exists (select 1 from redrive.task t where t.trace_id = n.name and t.scope = old.body #>> '{which,scope}' and t.created_at < old.created_at)
          and not exists (select 1 from redrive.history h where h.trace_id = n.name and h.scope = old.body #>> '{which,scope}' and h.created_at < old.created_at)
          and not exists (select 1 from redrive.audit a where a.trace_id = n.name and a.scope = old.body #>> '{which,scope}' and a.at < old.created_at))
      -- What was said in a document that is about somebody who is erased goes altogether.
      and not exists (select 1 from jsonb_object_keys(v_old || v_new) k
        where not redrive.only_erased(v_old -> k, v_new -> k)
          and not (k in ('reason', 'decision_reason', 'fixed', 'note') and v_new ->> k = 'erased' and exists (
            select 1 from redrive.record r where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
              and strpos(old.body::text, to_jsonb(r.body #>> '{which,scope}')::text) > 0)));
  end if;
  if not v_allowed then
    raise exception 'role % may not write this document of the collection %', redrive.caller(), v_collection using
      errcode = 'insufficient_privilege', hint = format('as the owner of the schema: select redrive.grant_api(%L)', redrive.caller());
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;

create or replace trigger guard_new before insert or update on redrive.record for each row
  when (new.collection in ('access', 'token', 'session', 'approval', 'alone', 'operation', 'audit-seal')) execute function redrive.guard_record();

create or replace trigger guard_old before update or delete on redrive.record for each row
  when (old.collection in ('access', 'token', 'session', 'approval', 'alone', 'operation', 'audit-seal')) execute function redrive.guard_record();

-- Nobody who runs tasks removes what was noted today: retention is for what is old, a filter of an operator's is the API's.
create or replace function redrive.guard_audit() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() then
    raise exception 'role % may not remove rows of the audit log that are younger than a day', redrive.caller() using
      errcode = 'insufficient_privilege', hint = format('set TASK_AUDIT_LOG_TTL_DAYS to 1 or more; or, as the owner of the schema: '
        'select redrive.grant_api(%L)', redrive.caller());
  end if;
  return old;
end $$;

create or replace trigger guard_young before delete on redrive.audit for each row
  when (old.at > clock_timestamp() - interval '1 day') execute function redrive.guard_audit();
