-- Leases that ran out, of tasks of one feature or of none. The recovering worker decides by the state machine and moves them, fenced by
-- these tokens. "deaths": workers that were lost while they had the task; null where whoever had it is no worker that beats: then
-- nobody knows whether it died. "unbegun": it had not begun it. "cut_offs": where more were missed than heard with it, how often
-- in a row that was so before.
-- (select clock_timestamp()): asked once, it bounds the index scan; asked per row, every live lease would be read.
create or replace function redrive.ended_leases(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision, deaths integer, unbegun boolean, cut_offs integer)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision,
    case when exists (select 1 from redrive.worker w where w.id = t.worker_id and w.beats_ms is not null) then t.deaths end,
    t.apart,
    case when exists (select 1 from redrive.worker w where w.id = t.worker_id and w.cut_off_at = t.lease_expires_at) then t.cut_offs end
  from redrive.task t
  where t.state = 'running' and t.lease_expires_at <= (select clock_timestamp())
    and t.lease_expires_at >= coalesce(p_from, '-infinity') and t.feature is not distinct from p_feature
  order by t.lease_expires_at limit p_limit
$$;
