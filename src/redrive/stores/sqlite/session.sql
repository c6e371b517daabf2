-- totals: add changes to the totals
insert into redrive_total (queue, kind, queued, delayed, running, paused, failed, completed, cancelled)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]')
from json_each(?) v where true
on conflict (queue, kind) do update set queued = queued + excluded.queued, delayed = delayed + excluded.delayed,
  running = running + excluded.running, paused = paused + excluded.paused, failed = failed + excluded.failed,
  completed = completed + excluded.completed, cancelled = cancelled + excluded.cancelled

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
