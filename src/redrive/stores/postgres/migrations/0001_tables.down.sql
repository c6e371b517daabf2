-- Removes everything but the record of steps: every task, and all that is known of them.
do $$
declare
  v_object record;
begin
  for v_object in
    select c.relname, case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as what
    from pg_catalog.pg_class c
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition
      and c.relname not in ('migration', 'function_set') and not exists (
        -- what a feature has that nobody has named stays: nothing says how it goes
        select 1 from redrive.migration m where m.feature <> '' and (c.relname = m.feature or starts_with(c.relname, m.feature || '_')))
    order by c.relkind = 'S'
  loop
    execute format('drop %s if exists redrive.%I cascade', v_object.what, v_object.relname);
  end loop;
  for v_object in select p.oid::regprocedure as name from pg_catalog.pg_proc p where p.pronamespace = 'redrive'::regnamespace loop
    execute format('drop function if exists %s cascade', v_object.name);
  end loop;
  for v_object in
    select t.typname from pg_catalog.pg_type t left join pg_catalog.pg_class c on c.oid = t.typrelid
    where t.typnamespace = 'redrive'::regnamespace and (t.typtype in ('d', 'e') or c.relkind = 'c')
  loop
    execute format('drop type if exists redrive.%I cascade', v_object.typname);
  end loop;
end $$;
