-- beat: a write a few times a minute is enough to be seen alive; back from a gap, it ticks before it beats, and the gap is one
-- all the same
update redrive_worker set seen_at = ?1, running = ?2, stopping = ?3,
  beating_since = case when seen_at < ?1 - 2000 * beats_ms then ?1 else beating_since end
where id = ?4 and (seen_at < ?5 or stopping <> ?6 or (stopping and running <> ?7))

-- join: a worker seen for the first time, or another process under the same name; whether it beats apart from its ticks,
-- its first beat will say
insert into redrive_worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set host = excluded.host, pid = excluded.pid,
  queues = excluded.queues, concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
  started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping, beat_ms = excluded.beat_ms,
  beats_ms = null, beating_since = null, machine = null, birth = null, dead_at = null, drain_at = null, drain_by = null, drain_reason = null
where (host, pid, queues) <> (excluded.host, excluded.pid, excluded.queues)

-- sheet_new: unless it was sent again because the answer was lost
update redrive_worker set sheet_id = ?1 where id = ?2 and sheet_id is not ?1

-- sheet: what a worker has counted
insert into redrive_series_sheet (at, document) values (?, ?)

-- duties_new: duties nobody had yet
insert into redrive_duty (name, next_at) select value, ? from json_each(?) where true on conflict (name) do nothing

-- duties: duties whose time has come go to this worker; one further ahead than its interval (and a minute)
-- has its time from a clock that was wrong
update redrive_duty set next_at = ?1 + v.every
from (select json_extract(j.value, '$[0]') as name, json_extract(j.value, '$[1]') as every from json_each(?2) j) v
where redrive_duty.name = v.name and redrive_duty.next_at not between ?1 + 1 and ?1 + v.every + 60000000
returning name

-- any_expired: is there a lease that ran out, of a task that this process can end
select 1 from redrive_task where state = 'running' and lease_expires_at <= ?
  and (feature is null or feature in (select value from json_each(?))) limit 1

-- any_schedule: is a schedule due, or was it fired by a clock that was ahead
select 1 from redrive_schedule where next_at <= ?1 or last_at > ?1 + 60000000 limit 1

-- due: tasks whose time has come
select rowid, queue, kind from redrive_task where state = 'delayed' and next_attempt_at <= ? order by next_attempt_at limit ?

-- promote: they join the tail in the order they were due
update redrive_task set state = 'queued', next_attempt_at = null, position = ? + v.key,
  lane = coalesce((select k.kind from redrive_kind k where k.kind = redrive_task.kind), '')
from (select j.key as key, j.value as id from json_each(?) j) v where redrive_task.rowid = v.id

-- cancels: a worker's tasks that somebody wants cancelled
select id from redrive_task where worker_id = ? and cancel_requested_at is not null and state = 'running'

-- next_due: when something is due again
select min(at) from (
  select min(next_attempt_at) as at from redrive_task where state = 'delayed'
  union all select min(next_at) from redrive_schedule where next_at > ?
  union all select min(next_at) from redrive_kind where rate_ms is not null and next_at > ?
  union all select min(until) from redrive_circuit where open and until > ?)

-- expired: leases that ran out, of tasks of one feature or of none, with the workers that were lost while they had the
-- task; null where whoever had it is no worker that beats: then nobody knows whether it died. Then whether it had not begun it, and,
-- where more were missed than heard with it, how often in a row that was so before
select id, lease_token, attempt_count, max_attempts, worker_id, feature, kind, queue, trace_id, timeout_ms, last_attempt_at,
  case when exists (select 1 from redrive_worker w where w.id = redrive_task.worker_id and w.beats_ms is not null)
    then redrive_task.deaths end,
  apart,
  case when exists (select 1 from redrive_worker w where w.id = redrive_task.worker_id and w.cut_off_at = lease_expires_at)
    then redrive_task.cut_offs end
from redrive_task where state = 'running' and lease_expires_at <= ? and feature is ? order by lease_expires_at limit ?

-- any_record: is there a document of this collection and state
select 1 from redrive_record where collection = ? and state = ? limit 1

-- resuming: a group whose tasks are on their way back
select task_group from redrive_resuming limit 1

-- resumed: all of them are back
delete from redrive_resuming where task_group = ?

-- held_back: tasks that wait for their group
select rowid, queue, kind from redrive_task where state = 'paused' and task_group = ? and paused_by = ? order by id limit ?

-- let_go: they join the tail
update redrive_task set state = 'queued', paused_by = null, position = ? + v.key,
  lane = coalesce((select k.kind from redrive_kind k where k.kind = redrive_task.kind), '')
from (select j.key as key, j.value as id from json_each(?) j) v where redrive_task.rowid = v.id
