-- A simple view could be written through, past totals and audit. These refuse it, also for the owner; a trigger, because
-- what would make them read-only by their form (a limit, say) would keep filters from reaching the indexes below.
create or replace function redrive.refuse_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'redrive.% is read-only', tg_table_name using errcode = 'object_not_in_prerequisite_state',
    hint = 'change tasks with the redrive command or its HTTP API, which keep totals and the audit log right';
end $$;
