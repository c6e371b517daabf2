-- open: new joins
insert into redrive_join (id, created_at, is_open, on_complete, on_success)
select json_extract(v.value, '$[0]'), ?, json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]') from json_each(?) v

-- close: no further members
update redrive_join set is_open = 0 where id in (select value from json_each(?))

-- arrive: members have ended, or were taken back
update redrive_join set completed = redrive_join.completed + v.completed, failed = redrive_join.failed + v.failed,
  cancelled = redrive_join.cancelled + v.cancelled
from (select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as completed,
  json_extract(j.value, '$[2]') as failed, json_extract(j.value, '$[3]') as cancelled from json_each(?) j) v
where redrive_join.id = v.id

-- ended: of these joins, those whose members have all ended, or completed, and which have not said so yet
select id, case when ended_at is null then on_complete end,
  case when succeeded_at is null and completed = total then on_success end
from redrive_join
where id in (select value from json_each(?)) and not is_open and completed + failed + cancelled = total
  and (ended_at is null or (succeeded_at is null and completed = total))

-- end: they have said so
update redrive_join set ended_at = coalesce(ended_at, ?1), on_complete = null,
  succeeded_at = case when completed = total then coalesce(succeeded_at, ?1) end,
  on_success = case when completed < total then on_success end
where id in (select value from json_each(?2))

-- fault: what follows could not be enqueued
update redrive_join set fault = ? where id = ?

-- known: which of these there are
select id from redrive_join where id in (select value from json_each(?))

-- joins: by their ids
select id, total, completed, failed, cancelled, is_open as open, created_at, ended_at, succeeded_at, fault from redrive_join
where id in (select value from json_each(?))
