drop trigger outbox_life on redrive.task;
drop function redrive.outbox_life_of_event();
drop table redrive.outbox_life;
do $$
begin
  if obj_description(to_regclass('public.search_outbox_events'), 'pg_class') like 'For producers: redrive.%' then
    drop view public.search_outbox_events;
  end if;
end $$;
drop view redrive.search_outbox_events;
drop function redrive.publish_from_view();
create view redrive.search_outbox_events as
  select e.id, split_part(e.scope, ':', 1) as entity_type, substr(e.scope, strpos(e.scope, ':') + 1) as entity_id,
    e.payload ->> 'op' as op,
    case when e.payload ->> 'version' ~ '^[0-9]{1,19}$' then
      case when (e.payload ->> 'version')::numeric <= 9223372036854775807 then (e.payload ->> 'version')::bigint end
    end as event_version,
    e.status, e.attempts, e.next_retry_at, e.lease_until, e.processing_started_at, null::timestamptz as processed_at,
    e.error_reason, e.error, e.replay_count, e.last_replayed_at, e.last_replayed_by, e.last_replayed_reason, e.created_at,
    greatest(e.created_at, e.last_attempt_at, e.failed_at, e.last_replayed_at) as updated_at
  from (
    select t.id, t.scope::text, t.payload::jsonb, 'pending' as status, t.attempt_count as attempts,
      null::timestamptz as next_retry_at, null::timestamptz as lease_until, null::timestamptz as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at
    from redrive.task t where t.state = 'queued' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'pending', t.attempt_count, t.next_attempt_at, null, null, t.error_reason, t.error_message,
      t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at
    from redrive.task t where t.state = 'delayed' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'processing', t.attempt_count, null, t.lease_expires_at, t.last_attempt_at, t.error_reason,
      t.error_message, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at,
      t.last_attempt_at, t.failed_at
    from redrive.task t where t.state = 'running' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'paused', t.attempt_count, null, null, null, t.error_reason, t.error_message, t.replay_count,
      t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at
    from redrive.task t where t.state = 'paused' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'failed', t.attempt_count, null, null, null, t.error_reason, t.error_message, t.replay_count,
      t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at
    from redrive.task t where t.state = 'failed' and t.kind like 'OUTBOX:%'
  ) e
  union all
  select e.id, split_part(e.scope, ':', 1), substr(e.scope, strpos(e.scope, ':') + 1), e.event ->> 'op',
    case when e.event ->> 'version' ~ '^[0-9]{1,19}$' then
      case when (e.event ->> 'version')::numeric <= 9223372036854775807 then (e.event ->> 'version')::bigint end
    end,
    e.status, e.attempt_count, null, null, e.last_attempt_at, e.finished_at, null, e.error, e.replay_count, r.at, r.actor,
    r.reason, e.created_at, e.finished_at
  from (
    select h.id, h.scope, h.result as event, 'done' as status, h.attempt_count, h.last_attempt_at, h.finished_at, null as error,
      h.replay_count, h.created_at
    from redrive.history h where h.state = 'completed' and h.kind like 'OUTBOX:%'
    union all
    select h.id, h.scope, h.payload, 'cancelled', h.attempt_count, h.last_attempt_at, h.finished_at, h.cancel_reason,
      h.replay_count, h.created_at
    from redrive.history h where h.state = 'cancelled' and h.kind like 'OUTBOX:%'
  ) e
  -- History does not keep who replayed it; the audit log does.
  left join lateral (
    select a.at, a.actor, a.reason from redrive.audit a
    where e.replay_count > 0 and a.task_id = e.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')
    order by a.id desc limit 1
  ) r on true;
create trigger read_only instead of insert or update or delete on redrive.search_outbox_events
  for each row execute function redrive.refuse_change();
