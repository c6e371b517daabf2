-- Members of a join are listed by state, live and finished, and its failures retried in the order in which they came. Only rows with a
-- join are in these indexes: others pay nothing.

-- beforehand: create index concurrently if not exists task_members on redrive.task (join_id, state, id) where join_id is not null;
-- beforehand: create index concurrently if not exists task_failed_join on redrive.task (join_id, failed_seq) where state = 'failed' and join_id is not null;
create index if not exists task_members on redrive.task (join_id, state, id) where join_id is not null;
drop index if exists redrive.task_of_join;
create index if not exists task_failed_join on redrive.task (join_id, failed_seq) where state = 'failed' and join_id is not null;

-- Coming days have it from here on. Past days that are large are left as they are, rather than that workers wait until all of history
-- has been read: a list leaves out the days before its join was made, so that they are looked at only for joins of these days.
create index history_members on only redrive.history (join_id, state, id) where join_id is not null;
do $$
declare
  v_day regclass;
  v_index text;
begin
  for v_day in
    select i.inhrelid::regclass from pg_catalog.pg_inherits i
    where i.inhparent = 'redrive.history'::regclass and pg_catalog.pg_table_size(i.inhrelid) < 256 * 1024 * 1024
  loop
    select c.relname || '_members' into v_index from pg_catalog.pg_class c where c.oid = v_day;
    execute format('create index %I on %s (join_id, state, id) where join_id is not null', v_index, v_day);
    execute format('alter index redrive.history_members attach partition redrive.%I', v_index);
  end loop;
end $$;
