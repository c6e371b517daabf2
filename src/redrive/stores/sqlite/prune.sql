-- prune_history: finished tasks past their keep
delete from redrive_history where rowid in (
  select h.rowid from redrive_history h where h.finished_at < ? order by h.finished_at limit ?)

-- prune_short: tasks of kinds that say how long
delete from redrive_history where rowid in (
  select h.rowid from redrive_history h where h.expires_at < ? order by h.expires_at limit ?)

-- prune_again: a day after its beginning a pass starts over, for tasks that have left meanwhile
update redrive_pruned set began = ?, at = 0, tie = '' where began < ?

-- prune_from: where the last piece ended
select at, tie from redrive_pruned where name = ?

-- pruned: where this one ended
insert into redrive_pruned (name, began, at, tie) values (?, ?, ?, ?)
on conflict (name) do update set at = excluded.at, tie = excluded.tie

-- keys: old keys, and whether their task is live still: such a key is kept, however old
select k.created_at, k.key, exists (select 1 from redrive_task t where t.id = k.task_id) from redrive_idempotency_key k
where (k.created_at, k.key) > (?, ?) and k.created_at < ? order by k.created_at, k.key limit ?

-- prune_keys: keys of tasks that are gone
delete from redrive_idempotency_key where key in (select value from json_each(?))

-- attempts: old attempts, and whether their task is there still, live or finished
select a.at, a.seq, exists (select 1 from redrive_task t where t.id = a.task_id)
  or exists (select 1 from redrive_history h where h.id = a.task_id) from redrive_attempt a
where (a.at, a.seq) > (?, ?) and a.at < ? order by a.at, a.seq limit ?

-- joins: old joins, and whether one of their members is live, or they have not ended or only lately, or wait for another
select j.created_at, j.id, j.ended_at is null or j.ended_at >= ?3 or exists (select 1 from redrive_task t where t.join_id = j.id)
  or exists (select 1 from redrive_join i where i.on_complete ->> 'join' = j.id) from redrive_join j
where (j.created_at, j.id) > (?1, ?2) and j.created_at < ?3 order by j.created_at, j.id limit ?4

-- prune_joins: those that nobody can arrive at any more
delete from redrive_join where id in (select value from json_each(?))

-- prune_attempts: attempts of tasks that are gone
delete from redrive_attempt where seq in (select value from json_each(?))

-- oldest_letter: the next dead letter, in the order they were written, which is that of their times
select dead_at from redrive_dead_letter where seq > ? order by seq limit 1

-- letters: the next dead letters, and whether their task is there still
select x.dead_at, x.seq, exists (select 1 from redrive_task t where t.id = x.task_id)
  or exists (select 1 from redrive_history h where h.id = x.task_id)
from (select d.dead_at, d.seq, d.task_id from redrive_dead_letter d where d.seq > ? order by d.seq limit ?) x
where x.dead_at < ? order by x.seq

-- prune_letters: dead letters of tasks that are gone
delete from redrive_dead_letter where seq in (select value from json_each(?))

-- causes: old causes, and whether something is failed by them still, or somebody has said something about them lately
select g.last_seen, g.fingerprint, exists (select 1 from redrive_failed_total t where t.fingerprint = g.fingerprint)
  or (g.last_seen >= ?4 and exists (select 1 from redrive_record r where r.collection = 'cause' and r.id = g.fingerprint))
from redrive_failure_group g
where (g.last_seen, g.fingerprint) > (?1, ?2) and g.last_seen < ?3 order by g.last_seen, g.fingerprint limit ?5

-- prune_causes: causes by which nothing is failed any more
delete from redrive_failure_group where fingerprint in (select value from json_each(?))

-- prune_cause_hours: how they went
delete from redrive_failure_hour where fingerprint in (select value from json_each(?))

-- prune_cause_notes: what people said about them
delete from redrive_record where collection = 'cause' and id in (select value from json_each(?))

-- prune_expired: documents that said themselves until when
delete from redrive_record where seq in (
  select seq from redrive_record where expires_at < ? order by expires_at limit ?)

-- prune_records: documents of one collection that did not change for long; ?3: only in these states; ?4: not the newest
delete from redrive_record where seq in (
  select r.seq from redrive_record r where r.collection = ?1 and r.updated_at < ?2
    and (?3 is null or r.state in (select value from json_each(?3)))
    and (not ?4 or r.seq < (select max(n.seq) from redrive_record n where n.collection = ?1))
  order by r.updated_at limit ?5)

-- prune_retries: what became of a retry stays as long as its operation; of those that were none, as long as dead letters
delete from redrive_retry_total where (bulk_id, outcome, cause) in (
  select x.bulk_id, x.outcome, x.cause from redrive_retry_total x
  where x.begun_at < ? and not exists (select 1 from redrive_record r where r.collection = 'operation' and r.id = x.bulk_id)
  order by x.begun_at limit ?)

-- prune_hours: how failures went long ago
delete from redrive_failure_hour where (fingerprint, hour) in (
  select fingerprint, hour from redrive_failure_hour where hour < ? order by hour limit ?)

-- prune_series: rows of one length, past their keep
delete from redrive_series where (resolution, at, queue, kind) in (
  select resolution, at, queue, kind from redrive_series where resolution = ? and at < ? order by at limit ?)

-- prune_sheets: what nobody has added up
delete from redrive_series_sheet where at < ?

-- names_used: when names that nobody declared were last used, as far as it shows in the totals
update redrive_used_name set used_at = ?1, tasks = c.n
from (
  select t.queue, t.kind, t.queued + t.delayed + t.running + t.paused + t.failed as live,
    t.queued + t.delayed + t.running + t.paused + t.failed + t.completed + t.cancelled as n from redrive_total t) c
where c.queue = redrive_used_name.queue and c.kind = redrive_used_name.kind
  and (c.n <> redrive_used_name.tasks or (c.live > 0 and redrive_used_name.used_at < ?2))
  and not (
    exists (select 1 from redrive_known_name k where k.what = 'queue' and k.name = redrive_used_name.queue)
    and exists (select 1 from redrive_known_name k where k.what = 'kind' and k.name = redrive_used_name.kind))

-- names_unused: names that nobody declared and nobody has used since
delete from redrive_used_name where used_at < ?1 and not (
  exists (select 1 from redrive_known_name k where k.what = 'queue' and k.name = redrive_used_name.queue)
  and exists (select 1 from redrive_known_name k where k.what = 'kind' and k.name = redrive_used_name.kind))

-- totals_unused: totals in which names that lapsed count nothing but tasks that were cancelled
delete from redrive_total
where queued = 0 and delayed = 0 and running = 0 and paused = 0 and failed = 0 and completed = 0 and dead_letters = 0
  and not exists (select 1 from redrive_used_name n where n.queue = redrive_total.queue and n.kind = redrive_total.kind)
  and not (
    exists (select 1 from redrive_known_name k where k.what = 'queue' and k.name = redrive_total.queue)
    and exists (select 1 from redrive_known_name k where k.what = 'kind' and k.name = redrive_total.kind))

-- prune_workers: workers not seen any more
delete from redrive_worker where seen_at < ?
