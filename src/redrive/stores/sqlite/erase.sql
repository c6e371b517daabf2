-- erase_ids: those of these tasks that are not live
select value from json_each(?) where not exists (select 1 from redrive_task t where t.id = value)

-- erase_keys: keys of these tasks; a key may name another task by now
delete from redrive_idempotency_key where key in (
  select h.idempotency_key from redrive_history h where h.id in (select value from json_each(?1)))
  and task_id in (select value from json_each(?1))

-- erase_gone: those of these tasks that are in history no more
select value from json_each(?) where not exists (select 1 from redrive_history h where h.id = value)

-- erase_gone_keys: keys of tasks that are gone; there is no index of this, because keys are written with tasks
delete from redrive_idempotency_key where task_id in (select value from json_each(?))

-- erase_causes: what a cause quotes of one of these tasks, or of one of this scope
update redrive_failure_group set message = 'erased', error_summary = null, sample_scope = null
where (sample_task in (select value from json_each(?1)) or sample_scope = ?2)
  and (message <> 'erased' or sample_scope is not null)

-- erase_tasks: what finished tasks carried
update redrive_history set payload = null, result = null, cancel_reason = null, trace_id = null, trace_parent = null, task_group = null,
  idempotency_key = null, facts = null, scope = case when scope is null then null else ?2 end, erased_at = ?3
where id in (select value from json_each(?1)) and erased_at is null

-- erase_joins: what is enqueued at the end of a join, and is about this scope
update redrive_join set on_complete = case when on_complete ->> 'scope' is not ?1 then on_complete end,
  on_success = case when on_success ->> 'scope' is not ?1 then on_success end
where on_complete ->> 'scope' = ?1 or on_success ->> 'scope' = ?1

-- outer_joins: joins that wait for what is about this scope and will not come
select on_complete ->> 'join' from redrive_join where on_complete ->> 'scope' = ? and on_complete ->> 'join' is not null

-- erase_attempts: what their attempts said
update redrive_attempt set message = 'erased', stack = null, error_summary = null, peer = null
where task_id in (select value from json_each(?)) and (message <> 'erased' or stack is not null or error_summary is not null)

-- erase_letters: what their dead letters carry and say
update redrive_dead_letter set payload = null, error_message = 'erased', error_summary = null, task_group = null,
  trace_id = null, scope = case when scope is null then null else ?2 end
where task_id in (select value from json_each(?1))
  and (error_message <> 'erased' or payload is not null or error_summary is not null or scope is not ?2)

-- erase_circuits: why circuits were opened, where somebody wrote the scope into it; a short one is looked for as the whole text only
update redrive_circuit set reason = 'erased' where (reason = ?1 or (length(?1) >= 6 and instr(reason, ?1) > 0))

-- erase_drains: why workers were told to drain, likewise
update redrive_worker set drain_reason = 'erased' where (drain_reason = ?1 or (length(?1) >= 6 and instr(drain_reason, ?1) > 0))

-- erase_holds: why something is paused
update redrive_hold set reason = 'erased' where (target, name) in (
  select json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]') from json_each(?) j)

-- erase_audit: rows of the audit log, but for a digest, and for what those tell that tell of removals
update redrive_audit set reason = null, target = null, scope = null, trace_id = null, before = null, salt = null,
  after = case when redrive_audit.id in (select value from json_each(?2)) then after end, erased = v.digest
from (select json_extract(j.value, '$[0]') as id, json_extract(j.value, '$[1]') as digest from json_each(?1) j) v
where redrive_audit.id = v.id and redrive_audit.erased is null

-- personal: what is kept about a scope, or about tasks
with meant as materialized (
  select t.id from redrive_task t where t.scope = ?1
  union select h.id from redrive_history h where h.scope = ?1
  union select d.task_id from redrive_dead_letter d where d.scope = ?1
  union select value from json_each(?2)
)
select 'running' as place, count(*) as n from meant m cross join redrive_task t on t.id = m.id where t.state = 'running'
union all select 'live', count(*) from meant m cross join redrive_task t on t.id = m.id where t.state <> 'running'
union all select 'finished', count(*) from meant m cross join redrive_history h on h.id = m.id where h.erased_at is null
union all select 'attempts', count(*) from meant m cross join redrive_attempt a on a.task_id = m.id where a.message <> 'erased'
union all select 'dead_letters', count(*) from meant m cross join redrive_dead_letter d on d.task_id = m.id
  where d.error_message <> 'erased'
union all select 'causes', count(*) from redrive_failure_group g
  where g.sample_scope = ?1 or (g.sample_task in (select value from json_each(?2)) and g.message <> 'erased')
union all select 'reasons', count(*) from redrive_circuit where (reason = ?1 or (length(?1) >= 6 and instr(reason, ?1) > 0))
union all select 'reasons', count(*) from redrive_worker where (drain_reason = ?1 or (length(?1) >= 6 and instr(drain_reason, ?1) > 0))
union all select 'joins', count(*) from redrive_join j where j.on_complete ->> 'scope' = ?1
union all select 'joins', count(*) from redrive_join j where j.on_success ->> 'scope' = ?1
union all select 'audit', count(*) from redrive_audit a where a.scope = ?1
union all select 'audit', count(*) from json_each(?2) u cross join redrive_audit a on a.task_id = u.value
  where a.erased is null

-- erasable: tasks of a scope that do not run, not even as another task of the same id
select id from (
  select id from (select t.id from redrive_task t where t.scope = ?1 and t.state <> 'running' limit ?2)
  union select id from (select h.id from redrive_history h where h.scope = ?1 and h.erased_at is null and not exists (
    select 1 from redrive_task t where t.id = h.id and t.state = 'running') limit ?2)
  union select id from (select d.task_id as id from redrive_dead_letter d where d.scope = ?1 and not exists (
    select 1 from redrive_task t where t.id = d.task_id and t.state = 'running') limit ?2)) limit ?2
