-- statuses: what has become of these tasks; an id that is in history more than once is its newest row
select id, state, failed_seq, error_code, error_fingerprint, 0 as erased, kind, queue, trace_id, attempt_count,
  feature, deaths
from redrive_task where id in (select value from json_each(?1))
union all select id, state, null, null, null, erased_at is not null, kind, queue, trace_id, attempt_count, feature, 0
from redrive_history h where id in (select value from json_each(?1))
  and not exists (select 1 from redrive_task t where t.id = h.id)
  and not exists (select 1 from redrive_history n where n.id = h.id and (n.finished_at, n.rowid) > (h.finished_at, h.rowid))

-- find_brief: live tasks without what they carry; filters and order follow
select id, state, kind, queue, null as payload, priority, attempt_count, max_attempts, task_group, scope, trace_id,
  idempotency_key, timeout_ms, created_at, run_at, next_attempt_at, last_attempt_at, lease_token, worker_id, paused_by,
  replay_count, last_replayed_at, cancel_requested_at, join_id
from redrive_task where true

-- find_live: live tasks; filters and order follow
select * from redrive_task where true

-- find_history: finished tasks; filters and order follow
select * from redrive_history where true

-- page_live: live tasks for a page: documents as text, and only up to so many bytes; filters and order follow
select id, state, kind, queue, priority, attempt_count, max_attempts, task_group, scope, trace_id, idempotency_key, timeout_ms,
  created_at, run_at, next_attempt_at, last_attempt_at, lease_token, lease_expires_at, worker_id, cancel_requested_at, paused_by,
  error_code, error_reason, failure_type, error_fingerprint, failed_at, failed_seq, dead_reason, replay_count, last_replayed_at,
  last_replayed_by, last_replayed_reason, last_replayed_bulk_id, feature, facts, join_id,
  case when length(cast(payload as blob)) <= ?1 and json_valid(payload) then payload end as payload, payload is not null as has_payload,
  case when length(cast(progress as blob)) <= ?1 and json_valid(progress) then progress end as progress, progress is not null as has_progress,
  error_summary,
  case when length(cast(error_message as blob)) <= ?1 then error_message end as error_message, error_message is not null as has_error_message,
  case when length(cast(error_stack as blob)) <= ?1 then error_stack end as error_stack, error_stack is not null as has_error_stack
from redrive_task where true

-- page_history: the same of finished tasks
select id, state, finished_at, erased_at, forgotten, created_at, last_attempt_at, lease_token, execution_ms, attempt_count, max_attempts, replay_count,
  timeout_ms, priority, kind, queue, task_group, scope, trace_id, idempotency_key, worker_id, feature, facts, join_id,
  case when length(cast(payload as blob)) <= ?1 and json_valid(payload) then payload end as payload, payload is not null as has_payload,
  case when length(cast(result as blob)) <= ?1 and json_valid(result) then result end as result, result is not null as has_result,
  case when length(cast(cancel_reason as blob)) <= ?1 then cancel_reason end as cancel_reason, cancel_reason is not null as has_cancel_reason
from redrive_history where true

-- page_letters: the same of dead letters
select id, seq, task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue, task_group, scope, trace_id,
  error_code, error_reason, failure_type, error_fingerprint,
  case when length(cast(payload as blob)) <= ?1 and json_valid(payload) then payload end as payload, payload is not null as has_payload,
  error_summary,
  case when length(cast(error_message as blob)) <= ?1 then error_message end as error_message, error_message is not null as has_error_message
from redrive_dead_letter where true

-- page_audit: the same of audit rows
select id, at, actor, action, reason, task_id, bulk_id, target, kind, scope, trace_id, salt, erased,
  case when length(cast(before as blob)) <= ?1 and json_valid(before) then before end as before, before is not null as has_before,
  case when length(cast(after as blob)) <= ?1 and json_valid(after) then after end as after, after is not null as has_after
from redrive_audit where true

-- attempts: failed attempts of a task, latest first
select * from redrive_attempt where task_id = ? order by seq desc limit ?

-- audit_of: audit rows of a task, latest first
select * from redrive_audit where task_id = ? order by id desc limit ?

-- audit_log: audit rows; filters and order follow
select * from redrive_audit where true

-- letters: dead letters; filters and order follow
select * from redrive_dead_letter where true

-- letters_before: of a filter, those before one
and seq < (select b.seq from redrive_dead_letter b where b.id = {})

-- letter_counts: how many dead letters there are, and forgotten tasks, per queue and kind
select queue, kind, dead_letters, forgotten from redrive_total where dead_letters <> 0 or forgotten <> 0 order by queue, kind

-- retry_counts: what became of the tasks of a bulk retry
select outcome, cause, n from redrive_retry_total where bulk_id = ? and n <> 0

-- letters_end: the last dead letter
select coalesce(max(seq), 0) as n from redrive_dead_letter

-- cancelled: of tasks (h) that were given up, each with its last dead letter (d); columns stand before it, filters, bounds and order follow
from redrive_history h join redrive_dead_letter d
  on d.seq = (select max(l.seq) from redrive_dead_letter l where l.task_id = h.id)
where h.state = 'cancelled' and h.erased_at is null and not exists (select 1 from redrive_task t where t.id = h.id)
  and h.kind in (select t.kind from redrive_total t where t.dead_letters > 0)

-- cancelled_of_many: the same where very many were given up: in the order of the letters, as far as it is asked for
from redrive_dead_letter d cross join redrive_history h on h.id = d.task_id
where h.state = 'cancelled' and h.erased_at is null and not exists (select 1 from redrive_task t where t.id = h.id)
  and not exists (select 1 from redrive_dead_letter l where l.task_id = d.task_id and l.seq > d.seq)

-- total_cancelled: by the totals; queue and kind follow
select coalesce(sum(cancelled), 0) as n from redrive_total where true

-- failed_ids: tasks that are failed now, by id and place; filters, bounds and order follow
select id, failed_seq, error_fingerprint, failed_at from redrive_task where state = 'failed'

-- failed_places: their places in the order of failures; filters, bounds and order follow
select failed_seq from redrive_task where state = 'failed'

-- live_totals: tasks by state
select coalesce(sum(queued), 0) as queued, coalesce(sum(delayed), 0) as delayed, coalesce(sum(running), 0) as running,
  coalesce(sum(paused), 0) as paused, coalesce(sum(failed), 0) as failed from redrive_total

-- count_causes: how many of some by cause; filters, order, limit, bracket and grouping follow
select fingerprint, count(*) as n from (select error_fingerprint as fingerprint from redrive_task where state = 'failed'

-- failed_since: of a filter, those that failed then (0) or later: few by their time, many by their places; by places alone, all of the ten minutes before would be looked at
and failed_at >= {0} and failed_seq > max(coalesce((
  select s.failed_seq from redrive_task s where s.state = 'failed' and s.failed_at < {1}
  order by s.failed_at desc limit 1), 0), (
  select case count(*) when 0 then 9223372036854775807 when 500 then 0 else min(few.failed_seq) - 1 end
  from (select m.failed_seq from redrive_task m where m.state = 'failed' and m.failed_at >= {0} limit 500) few))

-- failed_until: of a filter, those that failed before
and failed_at < {0} and failed_seq < min(coalesce((
  select s.failed_seq from redrive_task s where s.state = 'failed' and s.failed_at >= {1}
  order by s.failed_at limit 1), 9223372036854775807), (
  select case count(*) when 0 then 0 when 500 then 9223372036854775807 else max(few.failed_seq) + 1 end
  from (select m.failed_seq from redrive_task m where m.state = 'failed' and m.failed_at < {0} limit 500) few))

-- count_failed: how many; filters follow
select count(*) as n from redrive_task where state = 'failed'

-- count_some_failed: no more than a limit; filters, limit and bracket follow
select count(*) as n from (select 1 from redrive_task where state = 'failed'

-- sum_failed: the same by totals; filters follow
select coalesce(sum(n), 0) as n from redrive_failed_total where true

-- failed_counts: tasks that are failed now, by everything they are filtered by; causes and order follow
select * from redrive_failed_total where true

-- failed_end: the last place that a failure has taken
select value from redrive_failed_seq

-- causes: the causes seen last, before (?2, ?3); {failing}: which of them
select fingerprint from redrive_failure_group where {failing} and (?2 is null or (last_seen, fingerprint) < (?2, ?3))
order by last_seen desc, fingerprint desc limit ?1

-- rank_failing: causes by which most tasks are failed now, after (?2, ?3), without ?4
select value as fingerprint, n as failed, n as key from redrive_failed_sum
where dimension = 'cause' and n > 0 and (?2 is null or (n <= ?2 and (n < ?2 or value > ?3)))
  and value not in (select value from json_each(?4))
order by n desc, value limit ?1

-- count_failing: by how many causes tasks are failed now, without ?1, counted up to ?2
select count(*) as n from (select 1 from redrive_failed_sum where dimension = 'cause' and n > 0
  and value not in (select value from json_each(?1)) limit ?2)

-- all_failing: how many tasks are failed by each cause
select value as fingerprint, n from redrive_failed_sum where dimension = 'cause'

-- some_failing: the same of what matches; filters and grouping follow
select fingerprint, sum(n) as n from redrive_failed_total where true

-- rank_causes: what follows on those, as f. 0: failing ones, others (false) or all (null), 1: without these, 2: since when the trend is, 3 and 4: after this one, 5: how many
, named as (
  select fingerprint from f where {0} is not 0
  union select fingerprint from redrive_failure_group where {0} is not 1
), keyed as (
  select n.fingerprint, coalesce(f.n, 0) as failed, ({order}) as key
  from named n left join f using (fingerprint) left join redrive_failure_group g using (fingerprint)
  where n.fingerprint not in (select value from json_each({1})) and ({0} is null or (coalesce(f.n, 0) > 0) = {0})
), counted as (
  select *, count(*) over () as total from keyed where key is not null
)
select * from counted where {3} is null or key < {3} or (key = {3} and fingerprint > {4})
order by key desc, fingerprint limit {5}

-- by_failed: tasks that are failed now
coalesce(f.n, 0)

-- by_count: failures ever
g.n

-- by_first: when it was first seen
g.first_seen

-- by_last: when it was last seen
g.last_seen

-- by_trend: failures of the last day
coalesce((select sum(h.n) from redrive_failure_hour h where h.fingerprint = n.fingerprint and h.hour >= {2}), 0)

-- causes_named: those whose names begin so
select fingerprint from redrive_failure_group where fingerprint >= ?1 and fingerprint < ?2
union select fingerprint from redrive_failure_group where alias >= ?1 and alias < ?2 limit ?3

-- cause_members: tasks that are failed by a cause, those that failed last: for whom, where, and by which build
select t.scope, t.task_group, a.peer, a.build from (
  select id, scope, task_group from redrive_task where state = 'failed' and error_fingerprint = ?1
  order by failed_seq desc limit ?2) t
left join redrive_attempt a on a.seq = (select max(y.seq) from redrive_attempt y where y.task_id = t.id)

-- sum_by: what is failed now, by one thing alone; dimension and value follow
select coalesce(sum(n), 0) as n from redrive_failed_sum where true

-- failed_sums: the largest of one dimension
select dimension, value, n from redrive_failed_sum where dimension = ? order by n desc, value limit ?

-- causes_of: failures by cause
select * from redrive_failure_group where fingerprint in (select value from json_each(?))

-- trends: failures per hour of some causes
select fingerprint, hour, n from redrive_failure_hour
where fingerprint in (select value from json_each(?)) and hour >= ? order by hour

-- count_audit: how many; filters follow
select count(*) as n from redrive_audit where true

-- record: one document
select * from redrive_record where collection = ? and id = ?

-- records: documents; filters and order follow
select * from redrive_record where true

-- counts: exact totals per queue and kind
select * from redrive_total order by queue, kind

-- balance: one account
select balance from redrive_account where name = ?

-- holds: what is paused
select * from redrive_hold order by at

-- limits: kinds with a lane of their own
select * from redrive_kind order by kind

-- circuits: which kinds have which, and whether they are open
select * from redrive_circuit order by name

-- workers: workers seen lately
select * from redrive_worker order by id

-- leases: who has how many
select t.worker_id, t.queue, count(*) as tasks, coalesce(sum(t.last_attempt_at < w.started_at - 5000000), 0) as earlier,
  min(t.lease_expires_at) as first_ends, max(t.lease_expires_at) as last_ends
from redrive_task t left join redrive_worker w on w.id = t.worker_id
where t.state = 'running' and t.worker_id is not null and t.lease_expires_at is not null group by t.worker_id, t.queue

-- schedules: periodic tasks
select * from redrive_schedule order by name

-- due_schedules: schedules whose time has come, and those that were fired by a clock that was ahead: they have to be planned anew
select * from redrive_schedule where next_at <= ?1 or last_at > ?1 + 60000000 order by next_at
