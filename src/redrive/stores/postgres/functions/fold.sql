-- Dead letters that are removed, by whoever it is, leave the totals with it.
create or replace function redrive.letters_gone() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.total_delta (queue, kind, dead_letters)
  select g.queue, g.kind, -count(*) from gone g group by g.queue, g.kind;
  return null;
end $$;

-- Fold appended deltas into totals, a piece at a time. Readers always see total + deltas, before and after.
create or replace function redrive.fold(p_limit integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_totals integer;
  v_causes integer;
  v_failed integer;
  v_changed text[];
  v_seen text[];
  v_arrived jsonb;
  v_joins uuid[];
  v_retries integer;
begin
  begin
    lock table redrive.fold_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- somebody else is at it
  end;
  with gone as (
    delete from redrive.failed_delta d where d.ctid = any (array(select x.ctid from redrive.failed_delta x limit p_limit))
    returning *
  ), sums as (
    select g.kind, g.queue, g.task_group, g.error_code, g.error_reason, g.failure_type, g.dead_reason, g.fingerprint,
      sum(g.n) as n, count(*) as many
    from gone g group by g.kind, g.queue, g.task_group, g.error_code, g.error_reason, g.failure_type, g.dead_reason, g.fingerprint
  ), folded as (
    insert into redrive.failed_total as t (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
      fingerprint, n)
    select s.kind, s.queue, s.task_group, s.error_code, s.error_reason, s.failure_type, s.dead_reason, s.fingerprint, s.n
    from sums s where s.n <> 0
    on conflict (fingerprint, kind, queue, task_group, error_code, error_reason, failure_type, dead_reason)
    do update set n = t.n + excluded.n
  ), summed as (
    insert into redrive.failed_sum as m (dimension, value, n)
    select v.dimension, v.value, sum(s.n) from sums s cross join lateral (values ('total', ''), ('kind', s.kind), ('queue', s.queue), ('group', s.task_group),
      ('code', s.error_code), ('type', s.failure_type), ('reason', s.dead_reason), ('cause', s.fingerprint)) v(dimension, value)
    group by 1, 2 having sum(s.n) <> 0
    on conflict (dimension, value) do update set n = m.n + excluded.n
  )
  select coalesce(sum(s.many), 0), array_agg(distinct s.fingerprint) into v_failed, v_changed from sums s;
  -- What nobody is any more would only be added up.
  delete from redrive.failed_total t where t.n = 0;
  delete from redrive.failed_sum m where m.n = 0;
  with gone as (
    delete from redrive.total_delta d where d.ctid = any (array(select x.ctid from redrive.total_delta x limit p_limit))
    returning *
  ), sums as (
    select g.queue, g.kind, sum(g.queued) as queued, sum(g.delayed) as delayed, sum(g.running) as running,
      sum(g.paused) as paused, sum(g.failed) as failed, sum(g.completed) as completed, sum(g.cancelled) as cancelled,
      sum(g.dead_letters) as dead_letters, sum(g.forgotten) as forgotten, count(*) as n
    from gone g group by g.queue, g.kind
  ), folded as (
    insert into redrive.total as t (queue, kind, queued, delayed, running, paused, failed, completed, cancelled, dead_letters,
      forgotten)
    -- Names are short, unless a row came past all checks: it must not keep the others from being counted.
    select redrive.cut(s.queue, 120), redrive.cut(s.kind, 120), sum(s.queued), sum(s.delayed), sum(s.running),
      sum(s.paused), sum(s.failed), sum(s.completed), sum(s.cancelled), sum(s.dead_letters), sum(s.forgotten)
    from sums s group by 1, 2
    on conflict (queue, kind) do update set queued = t.queued + excluded.queued, delayed = t.delayed + excluded.delayed,
      running = t.running + excluded.running, paused = t.paused + excluded.paused, failed = t.failed + excluded.failed,
      completed = t.completed + excluded.completed, cancelled = t.cancelled + excluded.cancelled,
      dead_letters = t.dead_letters + excluded.dead_letters, forgotten = t.forgotten + excluded.forgotten
  )
  select coalesce(sum(s.n), 0) into v_totals from sums s;
  with gone as (
    delete from redrive.retry_delta d where d.ctid = any (array(select x.ctid from redrive.retry_delta x limit p_limit))
    returning *
  ), folded as (
    insert into redrive.retry_total as t (bulk_id, outcome, cause, n)
    select g.bulk_id, g.outcome, g.cause, sum(g.n) from gone g group by g.bulk_id, g.outcome, g.cause
    on conflict (bulk_id, outcome, cause) do update set n = t.n + excluded.n
  )
  select count(*) into v_retries from gone;
  with gone as (
    delete from redrive.failure_delta d where d.ctid = any (array(select x.ctid from redrive.failure_delta x limit p_limit))
    returning *
  ), hours as (
    insert into redrive.failure_hour as h (fingerprint, hour, n)
    select g.fingerprint, date_trunc('hour', g.at, 'UTC'), sum(g.n) from gone g group by 1, 2
    on conflict (fingerprint, hour) do update set n = h.n + excluded.n
  ), sums as (
    select g.fingerprint, sum(g.n) as n, min(g.at) as first_seen, max(g.at) as last_seen, max(g.alias) as alias
    from gone g group by g.fingerprint
  ), folded as (
    insert into redrive.failure_group as f (fingerprint, n, code, reason, failure_type, message, kind, sample_task,
      sample_scope, error_summary, first_seen, last_seen, alias)
    -- Message, kind, sample and summary are those of one failure, the latest.
    select s.fingerprint, s.n, l.code, l.reason, l.failure_type, l.message, l.kind, l.sample_task, l.sample_scope, l.error_summary,
      s.first_seen, s.last_seen, s.alias
    from sums s join (
      select distinct on (g.fingerprint) g.* from gone g order by g.fingerprint, g.at desc, g.sample_task
    ) l on l.fingerprint = s.fingerprint
    on conflict (fingerprint) do update set n = f.n + excluded.n, code = excluded.code, reason = excluded.reason,
      failure_type = excluded.failure_type, message = excluded.message, kind = excluded.kind, sample_task = excluded.sample_task,
      sample_scope = excluded.sample_scope, error_summary = excluded.error_summary,
      last_seen = greatest(f.last_seen, excluded.last_seen), alias = coalesce(excluded.alias, f.alias)
  )
  select coalesce(sum(s.n), 0), array_agg(s.fingerprint) into v_causes, v_seen from sums s;
  update redrive.failure_group f set failing = x.n
  from (
    select distinct u.fingerprint, coalesce(m.n, 0) as n from unnest(v_changed || v_seen) u(fingerprint)
    left join redrive.failed_sum m on m.dimension = 'cause' and m.value = u.fingerprint) x
  where f.fingerprint = x.fingerprint and f.failing <> x.n;
  -- Of joins that nobody holds: one that a handler's transaction has must not hold up all others. Of those that are gone nothing
  -- is left to add to.
  v_joins := array(
    select j.id from redrive.task_join j
    where j.id = any (array(select distinct d.join_id from redrive.join_delta d)) order by j.id for update skip locked);
  delete from redrive.join_delta d where not exists (select 1 from redrive.task_join j where j.id = d.join_id);
  with gone as (
    delete from redrive.join_delta d where d.ctid = any (array(
      select x.ctid from redrive.join_delta x where x.join_id = any (v_joins) limit p_limit))
    returning *
  )
  select jsonb_agg(s.*) into v_arrived from (
    select g.join_id, sum(g.completed) as completed, sum(g.failed) as failed, sum(g.cancelled) as cancelled, count(*) as n
    from gone g group by g.join_id) s;
  if v_arrived is not null then
    update redrive.task_join j set completed = j.completed + a.completed, failed = j.failed + a.failed,
      cancelled = j.cancelled + a.cancelled
    from jsonb_to_recordset(v_arrived) a(join_id uuid, completed bigint, failed bigint, cancelled bigint)
    where j.id = any (v_joins) and a.join_id = j.id;
    perform redrive.end_joins(v_joins);
    v_totals := v_totals + (select sum(a.n) from jsonb_to_recordset(v_arrived) a(n integer));
  end if;
  return v_totals + v_causes + v_failed + v_retries;
end $$;
create or replace trigger dead_letter_gone after delete on redrive.dead_letter referencing old table as gone
  for each statement execute function redrive.letters_gone();
