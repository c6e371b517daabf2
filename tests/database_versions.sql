-- Differs after any change of what database_shape.sql looks at, at a fraction of its price: how many rows each catalog has
-- and which transaction wrote the last of them. Counts are not of partitions alone: who adds one is looked at in full.
select concat_ws(' ',
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_namespace),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_class),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_attribute),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_index),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_constraint),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_attrdef),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_trigger),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_rewrite),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_proc),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_type),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from pg_extension),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from redrive.migration),
  (select concat_ws('/', count(*), max(xmin::text::bigint)) from redrive.function_set),
  (select concat_ws('/', count(*), max(s.xmin::text::bigint)) from pg_db_role_setting s
    join pg_database d on d.oid = s.setdatabase where d.datname = current_database())
);
