-- Differs after any change of what database_shape.sql looks at, at a fraction of its price: how many rows each catalog has
-- and which transaction wrote the last of them, by their ages, as numbers of transactions cannot be compared. Counts are not
-- of partitions alone: who adds one is looked at in full.
select concat_ws(' ',
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_namespace),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_class),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_attribute),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_index),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_constraint),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_attrdef),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_trigger),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_rewrite),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_proc),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_type),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from pg_extension),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from redrive.migration),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(xmin))) from redrive.function_set),
  (select concat_ws('/', count(*), age('3'::xid) - min(age(s.xmin))) from pg_db_role_setting s
    join pg_database d on d.oid = s.setdatabase where d.datname = current_database())
);
