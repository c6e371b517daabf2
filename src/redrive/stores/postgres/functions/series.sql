-- The first step of adding to the series: from here to the end of the transaction nobody else does. False when somebody is
-- at it.
create or replace function redrive.begin_series() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  lock table redrive.series_lock in exclusive mode nowait;
  return true;
exception when lock_not_available then
  return false;
end $$;

-- Sheets of workers, which are gone with it.
create or replace function redrive.take_sheets(p_limit integer) returns table (at timestamptz, document text)
language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from redrive.series_sheet s where s.ctid = any (array(select x.ctid from redrive.series_sheet x limit p_limit))
  returning s.at, s.document
$$;

-- Rows of the series as they are from now on.
create or replace function redrive.put_series(
  p_resolution text[], p_at timestamptz[], p_queue text[], p_kind text[], p_completed bigint[], p_failed bigint[],
  p_document jsonb[]
) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into redrive.series (resolution, at, queue, kind, completed, failed, document)
  select * from unnest(p_resolution, p_at, p_queue, p_kind, p_completed, p_failed, p_document)
  on conflict (resolution, at, queue, kind) do update set completed = excluded.completed, failed = excluded.failed,
    document = excluded.document
$$;
