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
