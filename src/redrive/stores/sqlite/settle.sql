-- complete: completed rows into history; the token exists only while a task runs, so it alone is the fence. Rows that a
-- feature reacts to are not completed on the side
insert into redrive_history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state, attempt_count,
  max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id, idempotency_key,
  worker_id, result, expires_at, join_id)
select t.id, ?1, t.created_at, t.last_attempt_at, t.lease_token, json_extract(v.value, '$[2]'), 'completed',
  t.attempt_count, t.max_attempts, t.replay_count, t.timeout_ms, t.priority, t.kind, t.queue, t.task_group, t.scope,
  t.trace_id, t.idempotency_key, t.worker_id, json_extract(v.value, '$[3]'), ?1 + json_extract(v.value, '$[4]'),
  t.join_id
from json_each(?2) v cross join redrive_task t
  on t.id = json_extract(v.value, '$[0]') and t.lease_token = json_extract(v.value, '$[1]') and t.feature is null

-- history_end: where the next row of history goes
select coalesce(max(rowid), 0) from redrive_history

-- ended: what was added to history since, by queue, kind and join, and whether some of it was retried
select json_group_array(json_array(x.queue, x.kind, x.join_id, x.n, x.retried)) from (
  select queue, kind, join_id, count(*) as n, max(replay_count) > 0 as retried from redrive_history where rowid > ? group by queue, kind, join_id) x

-- ended_retries: how many of them each bulk retry brought back, before they leave
select t.last_replayed_bulk_id, count(*) from redrive_history h cross join redrive_task t on t.id = h.id
where h.rowid > ? and t.last_replayed_bulk_id is not null group by 1

-- ended_ids: the tasks themselves
select json_group_array(id) from redrive_history where rowid > ?

-- forget: of these kinds nothing is kept
delete from redrive_history where rowid > ? and expires_at <= ?

-- gone: of these tasks nothing is left
select json_group_array(v.value) from json_each(?) v
where not exists (select 1 from redrive_task t where t.id = v.value)
  and not exists (select 1 from redrive_history h where h.id = v.value)

-- leave: they are no longer live
delete from redrive_task where id in (select id from redrive_history where rowid > ?)

-- delete: rows that left for history
delete from redrive_task where id in (select value from json_each(?))

-- look: what transitions depend on
select json_group_array(json_array(t.id, t.state, t.lease_token, t.lease_expires_at, t.cancel_requested_at,
  t.next_attempt_at, t.queue, t.kind, t.attempt_count, t.replay_count, t.worker_id, t.task_group, t.error_code,
  t.error_reason, t.failure_type, t.dead_reason, t.error_fingerprint, t.failed_seq, t.scope, t.max_attempts, t.trace_id,
  t.feature, t.facts, t.join_id, t.last_replayed_bulk_id))
from redrive_task t where t.id in (select value from json_each(?))

-- retire: rows on their way to history, with their payload when they can be retried from there
insert into redrive_history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state, attempt_count,
  max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id, idempotency_key,
  worker_id, cancel_reason, payload, result, expires_at, feature, facts, join_id, trace_parent, forgotten)
select t.id, ?1, t.created_at, t.last_attempt_at, case when json_extract(v.value, '$[5]') <> 'expire' then t.lease_token end,
  json_extract(v.value, '$[2]'), json_extract(v.value, '$[1]'), t.attempt_count, t.max_attempts, t.replay_count, t.timeout_ms, t.priority, t.kind,
  t.queue, t.task_group, t.scope, t.trace_id, t.idempotency_key, t.worker_id, json_extract(v.value, '$[3]'),
  case when json_extract(v.value, '$[1]') = 'cancelled' then t.payload end, json_extract(v.value, '$[4]'),
  ?1 + json_extract(v.value, '$[6]'), t.feature, t.facts, t.join_id,
  case when json_extract(v.value, '$[1]') = 'cancelled' then t.trace_parent end, json_extract(v.value, '$[7]')
from json_each(?2) v cross join redrive_task t on t.id = json_extract(v.value, '$[0]')

-- move: rows that stay, in their new state
update redrive_task set
  state = v.state,
  position = coalesce(v.position, redrive_task.position),
  lane = coalesce((select k.kind from redrive_kind k where k.kind = redrive_task.kind), ''),
  next_attempt_at = v.next_attempt_at,
  attempt_count = max(v.attempt_count - case when v.event in ('snooze', 'retry') then redrive_task.deaths else 0 end, 0),
  apart = 0,
  deaths = case when v.event in ('redrive', 'snooze', 'retry') then 0 else redrive_task.deaths + v.death end,
  cut_offs = case when v.event in ('redrive', 'snooze', 'retry') then 0 else redrive_task.cut_offs + v.cut_off end,
  max_attempts = case when v.event in ('redrive', 'snooze', 'retry') then max(redrive_task.max_attempts - redrive_task.deaths, 1)
    else min(redrive_task.max_attempts + v.death, 1000000) end,
  settled_token = coalesce(v.settled_token, redrive_task.settled_token), lease_token = null, lease_expires_at = null, worker_id = null, cancel_requested_at = null,
  paused_by = v.paused_by,
  memo = case when v.event = 'redrive' then null else coalesce(v.memo, redrive_task.memo) end,
  progress = case when v.event in ('redrive', 'retry', 'expire') then null else redrive_task.progress end,
  error_code = case when v.event = 'redrive' then null else coalesce(v.code, redrive_task.error_code) end,
  error_reason = case when v.event = 'redrive' then null else coalesce(v.cause, redrive_task.error_reason) end,
  failure_type = case when v.event = 'redrive' then null else coalesce(v.type, redrive_task.failure_type) end,
  error_message = case when v.event = 'redrive' then null else coalesce(v.message, redrive_task.error_message) end,
  error_stack = case when v.event = 'redrive' then null when v.code is null then redrive_task.error_stack else v.stack end,
  error_fingerprint = case when v.event = 'redrive' then null else coalesce(v.fingerprint, redrive_task.error_fingerprint) end,
  error_summary = case when v.event = 'redrive' then null when v.code is null then redrive_task.error_summary else v.summary end,
  failed_at = case when v.state = 'failed' then v.now end,
  failed_seq = v.failed_seq,
  dead_reason = v.dead,
  replay_count = redrive_task.replay_count + (v.event = 'redrive'),
  last_replayed_at = case when v.event = 'redrive' then v.now else redrive_task.last_replayed_at end,
  last_replayed_by = case when v.event = 'redrive' then v.actor else redrive_task.last_replayed_by end,
  last_replayed_reason = case when v.event = 'redrive' then v.reason else redrive_task.last_replayed_reason end,
  last_replayed_bulk_id = case when v.event = 'redrive' then v.bulk_id else redrive_task.last_replayed_bulk_id end
from (
  select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as event, json_extract(j.value, '$[2]') as state,
    json_extract(j.value, '$[3]') as position, json_extract(j.value, '$[4]') as next_attempt_at,
    json_extract(j.value, '$[5]') as attempt_count, json_extract(j.value, '$[6]') as paused_by,
    json_extract(j.value, '$[7]') as memo, json_extract(j.value, '$[8]') as actor, json_extract(j.value, '$[9]') as reason,
    json_extract(j.value, '$[10]') as now, json_extract(j.value, '$[11]') as settled_token,
    json_extract(j.value, '$[12]') as failed_seq, json_extract(j.value, '$[13]') as dead,
    json_extract(j.value, '$[14]') as bulk_id, json_extract(j.value, '$[15]') as death, json_extract(j.value, '$[16]') as cut_off,
    json_extract(j.value, '$[17]') as code,
    json_extract(j.value, '$[18]') as cause, json_extract(j.value, '$[19]') as type,
    json_extract(j.value, '$[20]') as message, json_extract(j.value, '$[21]') as stack,
    json_extract(j.value, '$[22]') as fingerprint, json_extract(j.value, '$[23]') as summary
  from json_each(?) j
) v where redrive_task.id = v.id

-- attempts: failed attempts
insert into redrive_attempt (task_id, at, lease_token, execution_ms, attempt, replay, code, reason, failure_type, message, stack,
  fingerprint, error_summary, worker_id, peer, build)
select json_extract(v.value, '$[0]'), ?, json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]'),
  json_extract(v.value, '$[9]'), json_extract(v.value, '$[10]'), json_extract(v.value, '$[11]'), json_extract(v.value, '$[12]'),
  json_extract(v.value, '$[13]'), (select w.build from redrive_worker w where w.id = json_extract(v.value, '$[12]'))
from json_each(?) v

-- dead_letters: records of terminal failures, from the rows as they are now
insert into redrive_dead_letter (id, task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue,
  task_group, scope, trace_id, payload, error_code, error_reason, failure_type, error_message, error_fingerprint,
  error_summary)
select json_extract(v.value, '$[1]'), t.id, ?, t.attempt_count, t.max_attempts, t.replay_count,
  json_extract(v.value, '$[2]'), t.kind, t.queue, t.task_group, t.scope, t.trace_id, t.payload, t.error_code,
  t.error_reason, t.failure_type, t.error_message, t.error_fingerprint, t.error_summary
from json_each(?) v cross join redrive_task t on t.id = json_extract(v.value, '$[0]')

-- causes: failures by fingerprint
insert into redrive_failure_group (fingerprint, n, code, reason, failure_type, message, kind, sample_task, first_seen, last_seen,
  error_summary, sample_scope, alias)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]'),
  json_extract(v.value, '$[8]'), json_extract(v.value, '$[9]'), json_extract(v.value, '$[10]'),
  json_extract(v.value, '$[11]')
from json_each(?) v where true
on conflict (fingerprint) do update set n = n + excluded.n, alias = coalesce(excluded.alias, alias), code = excluded.code, reason = excluded.reason,
  failure_type = excluded.failure_type, message = excluded.message, kind = excluded.kind, sample_task = excluded.sample_task,
  sample_scope = excluded.sample_scope, error_summary = excluded.error_summary, last_seen = max(last_seen, excluded.last_seen)

-- known_causes: by their own names, by a newer one, and what an earlier version of the rules has made for the same summary
select json_group_array(json_array(x.name, x.fingerprint)) from (
  select fingerprint as name, fingerprint from redrive_failure_group
  where fingerprint in (select json_extract(value, '$[0]') from json_each(?1))
  union all select alias, fingerprint from redrive_failure_group
  where alias in (select json_extract(value, '$[0]') from json_each(?1))
  union all select * from (
    select json_extract(v.value, '$[0]'), g.fingerprint from redrive_failure_group g join json_each(?1) v
      on g.code = json_extract(v.value, '$[1]') and g.error_summary = json_extract(v.value, '$[2]')
    where g.fingerprint < '4'
    order by exists (select 1 from redrive_record r where r.collection = 'cause' and r.id = g.fingerprint) desc,
      g.last_seen desc, g.fingerprint)) x

-- hours: and by the hour
insert into redrive_failure_hour (fingerprint, hour, n)
select json_extract(v.value, '$[0]'), ?, json_extract(v.value, '$[1]') from json_each(?) v where true
on conflict (fingerprint, hour) do update set n = n + excluded.n

-- cancelled: finished rows that an operator may bring back. An id may be in history more than once (a caller's own, used
-- again): its newest row counts, and none while a live task has it.
select json_group_array(json_array(h.rowid, h.id, h.queue, h.kind, h.join_id, h.attempt_count, h.max_attempts, h.replay_count,
  json_array(h.task_group, h.scope, h.trace_id), h.feature, h.facts, h.forgotten)) from redrive_history h where h.id in (select value from json_each(?)) and h.state = 'cancelled'
  and h.erased_at is null and not exists (select 1 from redrive_task t where t.id = h.id)
  and not exists (select 1 from redrive_history n where n.id = h.id and (n.finished_at, n.rowid) > (h.finished_at, h.rowid))

-- revive: back from history into the live table
insert into redrive_task (id, created_at, position, state, max_attempts, timeout_ms, priority, kind, queue, lane, task_group,
  scope, trace_id, idempotency_key, payload, replay_count, last_replayed_at, last_replayed_by, last_replayed_reason,
  last_replayed_bulk_id, feature, facts, join_id, trace_parent)
select h.id, h.created_at, json_extract(v.value, '$[1]'), 'queued', h.max_attempts, h.timeout_ms, h.priority, h.kind,
  h.queue, coalesce((select k.kind from redrive_kind k where k.kind = h.kind), ''), h.task_group, h.scope, h.trace_id,
  h.idempotency_key, h.payload, h.replay_count + 1, ?, json_extract(v.value, '$[2]'), json_extract(v.value, '$[3]'),
  json_extract(v.value, '$[4]'), h.feature, h.facts, h.join_id, h.trace_parent
from json_each(?) v cross join redrive_history h on h.rowid = json_extract(v.value, '$[0]')

-- revived: they are no longer finished
delete from redrive_history where rowid in (select value from json_each(?))

-- landed: pairs of id and token whose holder committed something already; only asked after a lost answer
select json_group_array(json_extract(v.value, '$[0]')) from json_each(?) v
where exists (select 1 from redrive_history h where h.id = json_extract(v.value, '$[0]')
    and h.lease_token = json_extract(v.value, '$[1]'))
  or exists (select 1 from redrive_attempt a where a.task_id = json_extract(v.value, '$[0]')
    and a.lease_token = json_extract(v.value, '$[1]'))
  or exists (select 1 from redrive_task t where t.id = json_extract(v.value, '$[0]')
    and t.settled_token = json_extract(v.value, '$[1]'))

-- audit: audit rows, with what their task says about itself
insert into redrive_audit (at, actor, action, reason, task_id, bulk_id, target, before, after, kind, scope, trace_id)
select ?, json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'),
  coalesce(t.kind, h.kind, case when json_extract(v.value, '$[5]') like 'kind:%' then substr(json_extract(v.value, '$[5]'), 6) end),
  coalesce(json_extract(v.value, '$[8]'), t.scope, h.scope), coalesce(t.trace_id, h.trace_id)
from json_each(?) v left join redrive_task t on t.id = json_extract(v.value, '$[3]')
left join redrive_history h on h.rowid = (select n.rowid from redrive_history n where t.id is null
  and n.id = json_extract(v.value, '$[3]') order by n.finished_at desc, n.rowid desc limit 1) order by v.key

-- current: which of these leases are not lost
select json_group_array(t.id) from json_each(?) v cross join redrive_task t
  on t.id = json_extract(v.value, '$[0]') and t.lease_token = json_extract(v.value, '$[1]')

-- renew: heartbeat
update redrive_task set lease_expires_at = ? where id in (select value from json_each(?))

-- progress: what handlers report
update redrive_task set progress = v.progress
from (select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as progress from json_each(?) j) v
where redrive_task.id = v.id
