drop index redrive.history_members;
do $$
declare
  v_index text;
begin
  -- Those of days that never became a part of the one above.
  for v_index in select i.indexname from pg_catalog.pg_indexes i where i.schemaname = 'redrive' and i.indexname ~ '^history_.*_members$' loop
    execute format('drop index if exists redrive.%I', v_index);
  end loop;
end $$;
drop index redrive.task_failed_join;
create index if not exists task_of_join on redrive.task (join_id, id) where join_id is not null;
drop index redrive.task_members;
