-- A digest of everything in a database but the rows of tasks and the partitions of history.
with names as (
  select oid from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
), tables as (
  select c.oid, c.relname, c.relkind, c.relacl, c.relowner, c.reloptions, c.relrowsecurity from pg_class c
  where c.relnamespace in (select oid from names) and c.relname !~ '^history_(default|[0-9])'
), parts as (
  select concat_ws(' ', 'schema', nspname, nspacl, nspowner) as part from pg_namespace where oid in (select oid from names)
  union all select concat_ws(' ', 'table', relname, relkind, relacl, relowner, reloptions, relrowsecurity) from tables
  union all select concat_ws(' ', 'column', t.relname, a.attname, a.atttypid, a.attnotnull, a.attacl, a.attisdropped)
    from pg_attribute a join tables t on t.oid = a.attrelid where a.attnum > 0
  union all select concat_ws(' ', 'index', t.relname, i.indisvalid, i.indisunique) from pg_index i join tables t on t.oid = i.indexrelid
  union all select concat_ws(' ', 'constraint', t.relname, c.conname, c.convalidated, pg_get_constraintdef(c.oid))
    from pg_constraint c join tables t on t.oid = c.conrelid
  union all select concat_ws(' ', 'domain', y.typname, c.conname, c.convalidated, pg_get_constraintdef(c.oid))
    from pg_constraint c join pg_type y on y.oid = c.contypid where y.typnamespace in (select oid from names)
  union all select concat_ws(' ', 'default', t.relname, d.adnum, pg_get_expr(d.adbin, d.adrelid))
    from pg_attrdef d join tables t on t.oid = d.adrelid
  union all select concat_ws(' ', 'trigger', t.relname, g.tgname, g.tgenabled) from pg_trigger g join tables t on t.oid = g.tgrelid
  union all select concat_ws(' ', 'view', t.relname, md5(pg_get_viewdef(t.oid))) from tables t where t.relkind in ('v', 'm')
  union all select concat_ws(' ', 'function', p.oid::regprocedure, md5(p.prosrc), p.proacl, p.proowner, p.prosecdef, p.proconfig)
    from pg_proc p where p.pronamespace in (select oid from names)
  union all select concat_ws(' ', 'type', y.typname, y.typacl) from pg_type y where y.typnamespace in (select oid from names) and y.typtype in ('d', 'e')
  union all select concat_ws(' ', 'step', to_jsonb(m)) from redrive.migration m
  union all select concat_ws(' ', 'functions', to_jsonb(f)) from redrive.function_set f
  union all select concat_ws(' ', 'extension', extname) from pg_extension
  union all select concat_ws(' ', 'setting', s.setconfig) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
    where d.datname = current_database()
)
select md5(string_agg(part, E'\n' order by part)) from parts;
