-- lanes: kinds with a lane of their own, and queues and kinds that are used together for the first time
select kind, null from redrive_kind where kind in (select value from json_each(?))
union all
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]') from json_each(?) v
where not exists (
  select 1 from redrive_used_name n where n.queue = json_extract(v.value, '$[0]') and n.kind = json_extract(v.value, '$[1]'))

-- undeclared_names: how many there are that no application has declared, and how many there may be
select (
    select count(*) from redrive_used_name n where not (
      exists (select 1 from redrive_known_name k where k.what = 'queue' and k.name = n.queue)
      and exists (select 1 from redrive_known_name k where k.what = 'kind' and k.name = n.kind))),
  coalesce((select most from redrive_name_bound), 1000)

-- declared_names: which of these queues and kinds applications have declared
select what, name from redrive_known_name
where (what = 'queue' and name in (select json_extract(value, '$[0]') from json_each(?)))
  or (what = 'kind' and name in (select json_extract(value, '$[1]') from json_each(?)))

-- add_names: they are in use from now on
insert into redrive_used_name (queue, kind, used_at) select json_extract(value, '$[0]'), json_extract(value, '$[1]'), ? from json_each(?)
where true on conflict do nothing

-- know_names: queues and kinds that an application has
insert into redrive_known_name (what, name) select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(?)
where true on conflict do nothing

-- know_attempts: how often an application tries the kinds that it handles
update redrive_known_name set max_attempts = json_extract(v.value, '$[1]') from json_each(?) v
where what = 'kind' and name = json_extract(v.value, '$[0]') and max_attempts is not json_extract(v.value, '$[1]')

-- known_attempts: how often these kinds are tried, where an application says so
select name, max_attempts from redrive_known_name
where what = 'kind' and max_attempts is not null and name in (select value from json_each(?))

-- bound_names: how many others there may be
insert into redrive_name_bound (one, most) values (1, ?) on conflict (one) do update set most = excluded.most

-- keys_back: keys of tasks that are refused name nothing
delete from redrive_idempotency_key where task_id in (select value from json_each(?)) and key in (select value from json_each(?))

-- keys_new: keys nobody used yet now name these tasks
insert into redrive_idempotency_key (key, task_id, digest, created_at, queue)
select json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]')
from json_each(?) v where true on conflict (key) do nothing returning key

-- keys: which tasks these keys name
select key, task_id, digest, queue from redrive_idempotency_key where key in (select value from json_each(?))

-- landed: ids that an earlier try already brought in
select id from redrive_task where id in (select value from json_each(?))
union select id from redrive_history where id in (select value from json_each(?))

-- insert: new tasks; followed by one VALUES row for each
insert into redrive_task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
  kind, queue, lane, task_group, scope, trace_id, idempotency_key, payload, trace_parent)
values

-- values: one new task
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- belong: whose they are, and which joins they are members of
update redrive_task set feature = v.feature, facts = v.facts, join_id = v.join_id
from (select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as feature, json_extract(j.value, '$[2]') as facts,
  json_extract(j.value, '$[3]') as join_id from json_each(?) j) v
where redrive_task.id = v.id

-- members: joins have more members
update redrive_join set total = total + v.n
from (select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as n from json_each(?) j) v
where redrive_join.id = v.id and (redrive_join.ended_at is null
  -- or somebody is at it again, who may need others for it
  or (redrive_join.succeeded_at is null and redrive_join.completed + redrive_join.failed + redrive_join.cancelled < redrive_join.total))
returning redrive_join.id
