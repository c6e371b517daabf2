-- lanes: kinds with a lane of their own
select kind from redrive_kind where kind in (select value from json_each(?))

-- keys_new: keys nobody used yet now name these tasks
insert into redrive_idempotency_key (key, task_id, digest, created_at)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]')
from json_each(?) v where true on conflict (key) do nothing

-- keys: which tasks these keys name
select key, task_id, digest from redrive_idempotency_key where key in (select value from json_each(?))

-- landed: ids that an earlier try already brought in
select id from redrive_task where id in (select value from json_each(?))
union select id from redrive_history where id in (select value from json_each(?))

-- insert: new tasks; followed by one VALUES row for each
insert into redrive_task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
  kind, queue, lane, task_group, scope, trace_id, idempotency_key, payload)
values

-- values: one new task
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
