-- All schedules of one application. A schedule whose definition is unchanged keeps its next run, unless
-- a clock that was wrong has put it too far away.
create or replace function redrive.declare_schedules(p_owner text, p_schedules jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from redrive.schedule s
  where s.owner = p_owner and not exists (
    select 1 from jsonb_to_recordset(p_schedules) x(name text) where x.name = s.name);
  insert into redrive.schedule as s (name, owner, kind, cron, timezone, missed, queue, payload, priority, max_attempts, next_at)
  select x.name, p_owner, x.kind, x.cron, x.timezone, x.missed, x.queue, x.payload, x.priority, x.max_attempts, x.next_at
  from jsonb_to_recordset(p_schedules) x(name text, kind text, cron text, timezone text, missed text, queue text,
    payload jsonb, priority smallint, max_attempts integer, next_at timestamptz)
  on conflict (name) do update set owner = excluded.owner, kind = excluded.kind, missed = excluded.missed,
    queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, max_attempts = excluded.max_attempts,
    next_at = case when (s.cron, s.timezone) = (excluded.cron, excluded.timezone) then least(s.next_at, excluded.next_at) else excluded.next_at end,
    cron = excluded.cron, timezone = excluded.timezone;
end $$;

-- True for exactly one caller per planned run.
create or replace function redrive.fire(p_name text, p_seen timestamptz, p_next timestamptz) returns boolean
language sql security definer set search_path = pg_catalog, pg_temp as $$
  with fired as (
    update redrive.schedule s set next_at = p_next, last_at = clock_timestamp()
    where s.name = p_name and s.next_at = p_seen returning 1
  )
  select exists (select 1 from fired)
$$;
