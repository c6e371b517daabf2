-- Who may do what. Nothing is open to everyone, and no role but the owner writes to tables by hand: workers change tasks
-- through functions that run with the owner's rights and keep totals, dead letters and audit right. Run as the owner:
--   select redrive.grant_producer('web'), redrive.grant_worker('worker'), redrive.grant_api('api'), redrive.grant_viewer('analyst');

-- Views that redrive has outside of its schema, so that they are found without it: their comments say so, and whose they are.
create or replace function redrive.outside_views() returns setof regclass
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.oid::regclass from pg_class c where c.relkind = 'v' and c.relnamespace = to_regnamespace('public')
    and c.relowner = (select t.relowner from pg_class t where t.oid = 'redrive.task'::regclass)
    and starts_with(obj_description(c.oid, 'pg_class'), 'For producers: redrive.');
$$;

-- A producer may enqueue, and call what features made for producers, and nothing else. Such a function says so in its
-- comment, which only its owner can write: comment on function redrive.publish(…) is 'For producers: …'; a view into which
-- they may insert, too.
create or replace function redrive.grant_producer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
  v_view regclass;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant select on redrive.migration, redrive.function_set to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, '
    'interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, redrive.traceparent, integer, integer, interval, '
    'timestamptz, interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean) to %I', p_role);
  execute format('grant execute on function redrive.enqueue_declared(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean, boolean[]) to %I', p_role);
  insert into redrive.name_allowance (role, part) select p_role, p.n from generate_series(1, 10) p(n) on conflict do nothing;
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and starts_with(obj_description(p.oid, 'pg_proc'), 'For producers:')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
  for v_view in
    select c.oid from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'v'
      and starts_with(obj_description(c.oid, 'pg_class'), 'For producers:')
    union all select o from redrive.outside_views() o
  loop
    execute format('grant insert on %s to %I', v_view, p_role);
  end loop;
end $$;

-- Who may call this may also write tokens, sessions and approvals: see redrive.guard_record.
create or replace function redrive.administer() returns boolean
language sql set search_path = pg_catalog, pg_temp as $$ select true $$;

-- Who calls, also inside of functions that run with their owner's rights.
create or replace function redrive.caller() returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(nullif(current_setting('role'), 'none'), session_user)::name
$$;

create or replace function redrive.administers() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select has_function_privilege(redrive.caller(), 'redrive.administer()', 'execute')
$$;

-- Who may announce names: applications that work, and operators.
create or replace function redrive.announces() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select has_function_privilege(redrive.caller(), 'redrive.know_names(text[], text[], bigint, jsonb)', 'execute')
$$;

-- A worker may run tasks: read what is needed for that, call the functions, and keep small documents and the audit log; not
-- tokens, sessions and approvals, by which others are let in. What it had and does not need goes.
create or replace function redrive.grant_worker(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
  v_table record;
  v_changed timestamptz := greatest((select max(m.applied_at) from redrive.migration m), (select max(f.loaded_at) from redrive.function_set f));
  -- Workers from before a change may need what those from now on do not: for a day after it their role keeps what it had, as long as
  -- some seem to run. What workers say of themselves gives a role nothing that it has not had.
  v_before boolean := exists (select 1 from redrive.worker w where w.seen_at > clock_timestamp() - interval '2 minutes'
      and w.started_at < v_changed)
    and v_changed > clock_timestamp() - interval '1 day'
    and not has_function_privilege(p_role, 'redrive.administer()', 'execute');
  v_kept oid[] := array(select c.oid from pg_class c where v_before and c.relnamespace = 'redrive'::regnamespace
    and c.relkind in ('r', 'p') and has_table_privilege(p_role, c.oid, 'delete'));
begin
  execute format('revoke all on all tables in schema redrive from %I', p_role);
  execute format('revoke all on function redrive.administer() from %I', p_role);
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant insert, update on redrive.record to %I', p_role);
  execute format('grant insert, delete on redrive.audit to %I', p_role);
  -- Tables of features, which are named after them, are written by the features' own statements. One whose comment begins with
  -- "For workers:" says there which rights these are, and only its owner can write that.
  for v_table in
    select c.oid::regclass as name, case
        when c.oid <> all (v_kept) and starts_with(obj_description(c.oid, 'pg_class'), 'For workers: ')
        then substr(obj_description(c.oid, 'pg_class'), 14)
        when c.relkind <> 'v' and exists (select 1 from redrive.migration m
          where m.feature <> '' and (c.relname = m.feature or starts_with(c.relname, m.feature || '_')))
        then 'select, insert, update, delete' else 'select' end as rights
    from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v')
  loop
    execute format('grant %s on %s to %I', v_table.rights, v_table.name, p_role);
  end loop;
  -- The others are inner parts of these, and would run with the caller's rights, as "apply_own" is meant to.
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and (p.prosecdef or p.provolatile <> 'v' or p.proname = 'apply_own')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
  for v_table in select o as name from redrive.outside_views() o loop
    execute format('grant select on %s to %I', v_table.name, p_role);
  end loop;
end $$;

-- What serves the HTTP API, and the command line of operators: all that a worker may do, and what decides who may operate and
-- how receivers know us.
create or replace function redrive.grant_api(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_table regclass;
begin
  perform redrive.grant_worker(p_role);
  execute format('grant execute on function redrive.administer() to %I', p_role);
  for v_table in
    select c.oid from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p')
      and starts_with(obj_description(c.oid, 'pg_class'), 'For workers: ')
  loop
    execute format('grant select, insert, update, delete on %s to %I', v_table, p_role);
  end loop;
end $$;

-- A viewer may look at the views, without what tasks carry and say: payloads, results, messages, stacks and idempotency
-- keys may hold secrets, and are the workers' and operators'.
create or replace function redrive.grant_viewer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_view record;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  for v_view in
    select c.oid::regclass as name, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where (c.relnamespace = 'redrive'::regnamespace or c.oid in (select o from redrive.outside_views() o))
      and c.relkind = 'v' and a.attnum > 0
      and a.attname not in ('payload', 'result', 'progress', 'error', 'error_message', 'error_stack', 'before',
        'after', 'idempotency_key')
    group by c.oid
  loop
    execute format('grant select (%s) on %s to %I', v_view.columns, v_view.name, p_role);
  end loop;
end $$;

-- Gives what a step or a feature added to everyone who had the rest: a deploy migrates before its workers know of it, and
-- those that run must not be refused what is new. What a role had and its kind has no more goes. Returns how many roles it looked after.
create or replace function redrive.grant_again() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_role record;
  v_count integer := 0;
begin
  for v_role in
    with given as (
      select a.grantee, p.proname::text as what from pg_proc p, aclexplode(p.proacl) a
      where p.pronamespace = 'redrive'::regnamespace and p.proname in ('administer', 'cycle', 'enqueue') and a.grantee not in (0, p.proowner)
      union
      select a.grantee, 'view' from pg_attribute c, aclexplode(c.attacl) a
      where c.attrelid = 'redrive.v_tasks'::regclass and c.attname = 'state'
    )
    select r.rolname as name, bool_or(g.what = 'administer') as api, bool_or(g.what = 'cycle') as worker, bool_or(g.what = 'enqueue') as producer,
      bool_or(g.what = 'view') as viewer
    from given g join pg_roles r on r.oid = g.grantee group by r.rolname
  loop
    if v_role.api then perform redrive.grant_api(v_role.name);
    elsif v_role.worker then perform redrive.grant_worker(v_role.name);
    elsif v_role.producer then perform redrive.grant_producer(v_role.name); end if;
    if v_role.viewer then perform redrive.grant_viewer(v_role.name); end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;
