-- row: the worker of this name
select host, pid, machine, birth, dead_at, drain_at from redrive_worker where id = ?

-- beat: it lives; a beat that comes two beats late begins anew, since others may have been cut off with it
update redrive_worker set running = ?2, started_at = min(started_at, ?3), stalled_ms = ?5, dead_at = null, machine = ?7, birth = ?8,
  beating_since = case when beats_ms is null or beating_since > ?1 or seen_at < ?1 - 2000 * ?4 then ?1 else beating_since end,
  beats_ms = ?4, seen_at = ?1
where id = ?6

-- join: a worker that is heard of for the first time, or another process under the same name
insert into redrive_worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms,
  beats_ms, beating_since, stalled_ms, machine, birth)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?9, ?12, ?13, ?14) on conflict (id) do update set host = excluded.host,
  pid = excluded.pid, queues = excluded.queues, concurrency = excluded.concurrency, running = excluded.running,
  version = excluded.version, started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
  beat_ms = excluded.beat_ms, beats_ms = excluded.beats_ms, beating_since = excluded.beating_since,
  stalled_ms = excluded.stalled_ms, machine = excluded.machine, birth = excluded.birth, dead_at = null, drain_at = null, drain_by = null, drain_reason = null

-- fleet: who counts when it is judged who is silent, as ``Member``: those that beat apart from their loop and were not declared
-- dead, but for those that have said goodbye; what somebody had who was last seen longer ago than a lease lasts is free already
select id, seen_at, beating_since, started_at, beats_ms from redrive_worker
where beats_ms is not null and dead_at is null and not (stopping and running = 0) and seen_at > ?1 - 1000 * (?2 + ?3)

-- left_behind: since when it has beaten, if something runs that was claimed under this name before its process became a worker
select (select max(w.started_at, w.beating_since) from redrive_worker w where w.id = ?2) from redrive_task t where t.state = 'running' and t.lease_expires_at > ?1 and t.worker_id = ?2
  and t.last_attempt_at < (select w.started_at from redrive_worker w where w.id = ?2) limit 1

-- may_judge: has it beaten without a gap for long enough; since when it is a worker, and its beat
select started_at, beats_ms from redrive_worker where id = ?1 and beats_ms is not null and beating_since <= ?2 - 1000 * ?3
  and seen_at > ?2 - 2000 * beats_ms

-- end_leases: of a worker, since before a moment
update redrive_task set lease_expires_at = ?1
where state = 'running' and lease_expires_at > ?1 and worker_id = ?2 and (?3 is null or last_attempt_at < ?3)

-- declare_dead: others say so; its next beat takes that back
update redrive_worker set dead_at = ?1 where id = ?2

-- cut_off: its leases ended at this moment, while more were missed than heard
update redrive_worker set cut_off_at = ?1 where id = ?2

-- cut_off_since: how many were declared dead while more were missed than heard, since a moment
select count(*) from redrive_worker where dead_at is not null and cut_off_at > ?1

-- neighbours: the other workers whose processes this one can look for
select id, pid, birth, seen_at, beats_ms from redrive_worker
where machine = ?1 and host = ?2 and birth is not null and beats_ms is not null and id <> ?3
  and dead_at is null and not (stopping and running = 0) and seen_at > ?4

-- declare_gone: its process is known to be gone
update redrive_worker set dead_at = ?1 where id = ?2 and host = ?3 and pid = ?4 and dead_at is null
  and (?5 is null or machine = ?5) and (?6 is null or birth = ?6)

-- mark_waiting: these wait to be alone, or are begun
update redrive_task set apart = ?1 where (id, lease_token) in (
  select json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]') from json_each(?2) j)

-- note_build: which build of the application a worker runs
update redrive_worker set build = ?1 where id = ?2 and build is not ?1
