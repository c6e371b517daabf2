-- Day partitions of history: makes the coming ones, drops those older than p_keep_days. security definer, because only
-- the owner of a table may add partitions to it.
create or replace function redrive.partitions(p_keep_days double precision) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_today constant date := (clock_timestamp() at time zone 'UTC')::date;
  v_day date;
  v_name text;
  v_changed integer := 0;
begin
  begin
    lock table redrive.partition_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- somebody else is at it
  end;
  for i in 0..3 loop
    v_day := v_today + i;
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    if to_regclass('redrive.' || v_name) is null then
      begin
        execute format('create table redrive.%I partition of redrive.history for values from (%L) to (%L)', v_name,
          v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
        v_changed := v_changed + 1;
      exception
        when check_violation then
          null;  -- the default partition already holds rows of that day: they stay there
        when lock_not_available then
          return v_changed;
      end;
    end if;
  end loop;
  for v_name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'redrive.history'::regclass and c.relname ~ '^history_\d{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - ceil(p_keep_days)::integer
  loop
    begin
      execute format('drop table redrive.%I', v_name);
      v_changed := v_changed + 1;
    exception when lock_not_available then
      exit;
    end;
  end loop;
  return v_changed;
end $$;

-- The first days of history, and those of today.
select redrive.partitions(36500);
