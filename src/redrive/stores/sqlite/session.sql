-- totals: add changes to the totals
insert into redrive_total (queue, kind, queued, delayed, running, paused, failed, completed, cancelled, forgotten)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]'), json_extract(v.value, '$[9]')
from json_each(?) v where true
on conflict (queue, kind) do update set queued = queued + excluded.queued, delayed = delayed + excluded.delayed,
  running = running + excluded.running, paused = paused + excluded.paused, failed = failed + excluded.failed,
  completed = completed + excluded.completed, cancelled = max(cancelled + excluded.cancelled, 0),
  forgotten = max(forgotten + excluded.forgotten, 0)

-- retries: what became of retried tasks
insert into redrive_retry_total (bulk_id, outcome, cause, n, begun_at)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'), json_extract(v.value, '$[3]'),
  cast(strftime('%s', 'now') as integer) * 1000000
from json_each(?) v where true
on conflict (bulk_id, outcome, cause) do update set n = n + excluded.n

-- take_positions: places at the tail of all queues
update redrive_position set value = value + ? where one = 1 returning value

-- take_failed: places in the order of failures
update redrive_failed_seq set value = value + ? where one = 1 returning value

-- failed_totals: add changes to the totals of what is failed now
insert into redrive_failed_total (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
  fingerprint, n)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]')
from json_each(?) v where true
on conflict (fingerprint, kind, queue, task_group, error_code, error_reason, failure_type, dead_reason)
do update set n = n + excluded.n

-- failed_gone: nobody is like this any more
delete from redrive_failed_total where n = 0 and fingerprint in (select json_extract(v.value, '$[7]') from json_each(?) v)

-- failed_sums: add changes to the sums by each of them alone
insert into redrive_failed_sum (dimension, value, n)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]') from json_each(?) v where true
on conflict (dimension, value) do update set n = n + excluded.n

-- failed_sums_gone: nobody is like this any more
delete from redrive_failed_sum where n = 0 and (dimension, value) in (
  select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]') from json_each(?) v)

-- failing: how many are failed by these causes now
update redrive_failure_group set failing = coalesce((
  select m.n from redrive_failed_sum m where m.dimension = 'cause' and m.value = redrive_failure_group.fingerprint), 0)
where fingerprint in (select value from json_each(?))
