drop trigger redrive_outbox_life_of_event;
drop trigger redrive_outbox_life_first;
drop table redrive_outbox_life;
-- only where: select 1 from sqlite_master where type = 'view' and name = 'search_outbox_events'
drop view search_outbox_events;
create view if not exists search_outbox_events as
  select e.id, substr(e.scope, 1, instr(e.scope, ':') - 1) as entity_type, substr(e.scope, instr(e.scope, ':') + 1) as entity_id,
    json_extract(e.payload, '$.op') as op,
    case json_type(e.payload, '$.version') when 'integer' then json_extract(e.payload, '$.version') end as event_version,
    e.status, e.attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.next_retry_at / 1e6, 'unixepoch') as next_retry_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.lease_until / 1e6, 'unixepoch') as lease_until,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.processing_started_at / 1e6, 'unixepoch') as processing_started_at, null as processed_at,
    e.error_reason, e.error, e.replay_count,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.last_replayed_at / 1e6, 'unixepoch') as last_replayed_at, e.last_replayed_by,
    e.last_replayed_reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.created_at / 1e6, 'unixepoch') as created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', max(e.created_at, coalesce(e.last_attempt_at, 0), coalesce(e.failed_at, 0),
      coalesce(e.last_replayed_at, 0)) / 1e6, 'unixepoch') as updated_at
  from (
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'pending' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive_task t where t.state = 'queued' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'pending' as status,
      t.attempt_count as attempts, t.next_attempt_at as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive_task t where t.state = 'delayed' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'processing' as status,
      t.attempt_count as attempts, null as next_retry_at, t.lease_expires_at as lease_until, t.last_attempt_at as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive_task t where t.state = 'running' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'paused' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive_task t where t.state = 'paused' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'failed' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive_task t where t.state = 'failed' and t.kind glob 'OUTBOX:*'
  ) e
  union all
  select e.id, substr(e.scope, 1, instr(e.scope, ':') - 1), substr(e.scope, instr(e.scope, ':') + 1),
    json_extract(e.event, '$.op'), case json_type(e.event, '$.version') when 'integer' then json_extract(e.event, '$.version') end,
    e.status, e.attempt_count, null, null,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.last_attempt_at / 1e6, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', e.finished_at / 1e6, 'unixepoch'), null, e.error, e.replay_count,
    -- History does not keep who replayed it; the audit log does.
    strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e6, 'unixepoch'), r.actor, r.reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.created_at / 1e6, 'unixepoch'),
    strftime('%Y-%m-%dT%H:%M:%fZ', e.finished_at / 1e6, 'unixepoch')
  from (
    select h.id, h.scope, case when json_valid(h.result) then h.result end as event, 'done' as status, h.attempt_count,
      h.last_attempt_at, h.finished_at, null as error, h.replay_count, h.created_at,
      case when h.replay_count > 0 then (
        select max(a.id) from redrive_audit a
        where a.task_id = h.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')) end as replay
    from redrive_history h where h.state = 'completed' and h.kind glob 'OUTBOX:*'
    union all
    select h.id, h.scope, case when json_valid(h.payload) then h.payload end as event, 'cancelled' as status, h.attempt_count,
      h.last_attempt_at, h.finished_at, h.cancel_reason as error, h.replay_count, h.created_at,
      case when h.replay_count > 0 then (
        select max(a.id) from redrive_audit a
        where a.task_id = h.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')) end as replay
    from redrive_history h where h.state = 'cancelled' and h.kind glob 'OUTBOX:*'
  ) e left join redrive_audit r on r.id = e.replay;
