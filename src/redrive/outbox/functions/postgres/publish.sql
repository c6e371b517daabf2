-- Publishing from SQL, and the events as people look at them.

-- Publishes an event in the caller's transaction; returns its id. Any op is taken: the relay refuses those it does not know, each by itself.
--   select redrive.publish('notes', 'note', '17', 'upsert', 3, '{"title": "Milk"}');
create or replace function redrive.publish(
  projection text, entity_type text, entity_id text, op text, version bigint, payload jsonb default null,
  routing text default null, max_attempts integer default 10
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_problem text;
  v_event jsonb;
begin
  perform redrive.check_name('projection', projection), redrive.check_label('routing', routing);
  v_problem := case
    when octet_length(projection) > 100 then 'the name of a projection has at most 100 characters'
    when coalesce(entity_type, '') = '' or strpos(entity_type, ':') > 0 then
      'the entity type must be a word without a colon, such as ''note'''
    when coalesce(entity_id, '') = '' then 'the entity has no id'
    when coalesce(op, '') = '' or char_length(op) > 40 then 'op must be a word such as ''upsert'' or ''delete'''
    when version is null or version < 0 then 'the version of an event is a whole number from 0 on'
  end;
  if v_problem is not null then
    raise exception '%', v_problem using errcode = 'invalid_parameter_value',
      hint = 'redrive.publish(projection, entity_type, entity_id, op, version, payload)';
  end if;
  v_event := jsonb_build_object('entity_type', entity_type, 'entity_id', entity_id, 'op', op, 'version', version,
    'payload', payload);
  if routing is not null then v_event := v_event || jsonb_build_object('routing', routing); end if;
  return redrive.enqueue('OUTBOX:' || projection, v_event, 'outbox:' || projection, scope => entity_type || ':' || entity_id,
    max_attempts => coalesce(max_attempts, 10));
end $$;

comment on function redrive.publish(text, text, text, text, bigint, jsonb, text, integer) is
  'For producers: publishes an event of the outbox in the caller''s transaction.';

-- Events with their projection (columns are added behind the others), for producers of the earlier system also to be written:
--   insert into search_outbox_events (entity_type, entity_id, op, event_version, status) values ('note', '17', 'delete', 4, 'pending');
create or replace view redrive.search_outbox_events as
  select e.id, split_part(e.scope, ':', 1) as entity_type, substr(e.scope, strpos(e.scope, ':') + 1) as entity_id,
    e.payload ->> 'op' as op,
    case when e.payload ->> 'version' ~ '^[0-9]{1,19}$' then
      case when (e.payload ->> 'version')::numeric <= 9223372036854775807 then (e.payload ->> 'version')::bigint end
    end as event_version,
    e.status, e.attempts, e.next_retry_at, e.lease_until, e.processing_started_at, null::timestamptz as processed_at,
    e.error_reason, e.error, e.replay_count, e.last_replayed_at, e.last_replayed_by, e.last_replayed_reason, e.created_at,
    greatest(e.created_at, e.last_attempt_at, e.failed_at, e.last_replayed_at) as updated_at,
    substr(e.kind, 8) as projection
  from (
    select t.id, t.scope::text, t.payload::jsonb, 'pending' as status, t.attempt_count as attempts,
      null::timestamptz as next_retry_at, null::timestamptz as lease_until, null::timestamptz as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind::text
    from redrive.task t where t.state = 'queued' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'pending', t.attempt_count, t.next_attempt_at, null, null, t.error_reason, t.error_message,
      t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive.task t where t.state = 'delayed' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'processing', t.attempt_count, null, t.lease_expires_at, t.last_attempt_at, t.error_reason,
      t.error_message, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at,
      t.last_attempt_at, t.failed_at, t.kind
    from redrive.task t where t.state = 'running' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'paused', t.attempt_count, null, null, null, t.error_reason, t.error_message, t.replay_count,
      t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive.task t where t.state = 'paused' and t.kind like 'OUTBOX:%'
    union all
    select t.id, t.scope, t.payload, 'failed', t.attempt_count, null, null, null, t.error_reason, t.error_message, t.replay_count,
      t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason, t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive.task t where t.state = 'failed' and t.kind like 'OUTBOX:%'
  ) e
  union all
  select e.id, split_part(e.scope, ':', 1), substr(e.scope, strpos(e.scope, ':') + 1), e.event ->> 'op',
    case when e.event ->> 'version' ~ '^[0-9]{1,19}$' then
      case when (e.event ->> 'version')::numeric <= 9223372036854775807 then (e.event ->> 'version')::bigint end
    end,
    e.status, e.attempt_count, null, null, e.last_attempt_at, e.finished_at, null, e.error, e.replay_count, r.at, r.actor,
    r.reason, e.created_at, e.finished_at, substr(e.kind, 8)
  from (
    select h.id, h.scope, h.result as event, 'done' as status, h.attempt_count, h.last_attempt_at, h.finished_at, null as error,
      h.replay_count, h.created_at, h.kind
    from redrive.history h where h.state = 'completed' and h.kind like 'OUTBOX:%'
    union all
    select h.id, h.scope, h.payload, 'cancelled', h.attempt_count, h.last_attempt_at, h.finished_at, h.cancel_reason,
      h.replay_count, h.created_at, h.kind
    from redrive.history h where h.state = 'cancelled' and h.kind like 'OUTBOX:%'
  ) e
  -- History does not keep who replayed it; the audit log does.
  left join lateral (
    select a.at, a.actor, a.reason from redrive.audit a
    where e.replay_count > 0 and a.task_id = e.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')
    order by a.id desc limit 1
  ) r on true;

create or replace function redrive.publish_from_view() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(new.status, 'pending') <> 'pending' or coalesce(new.attempts, 0) <> 0 or num_nonnulls(new.id, new.next_retry_at,
    new.lease_until, new.processing_started_at, new.processed_at, new.error_reason, new.error, nullif(new.replay_count, 0),
    new.last_replayed_at, new.last_replayed_by, new.last_replayed_reason, new.created_at, new.updated_at) > 0
  then
    raise exception 'an event begins as pending, and redrive sets the rest' using errcode = 'invalid_parameter_value',
      hint = 'insert projection, entity_type, entity_id, op, event_version and status; redrive.publish(…) also takes a document';
  end if;
  new.projection := coalesce(new.projection, 'search_index_to_elastic');
  new.id := redrive.publish(new.projection, new.entity_type, new.entity_id, new.op, new.event_version);
  new.status := 'pending'; new.attempts := 0; new.replay_count := 0; new.created_at := clock_timestamp(); new.updated_at := new.created_at;
  return new;
end $$;

create or replace trigger read_only instead of update or delete on redrive.search_outbox_events
  for each row execute function redrive.refuse_change();

create or replace trigger publish instead of insert on redrive.search_outbox_events
  for each row execute function redrive.publish_from_view();

comment on view redrive.search_outbox_events is 'For producers: what is inserted here is published.';

-- Found without its schema, where this role may make a view in "public" and nothing there has the name.
do $$
begin
  if to_regclass('public.search_outbox_events') is null and to_regtype('public.search_outbox_events') is null
    and has_schema_privilege(current_user, to_regnamespace('public'), 'create')
  then
    create view public.search_outbox_events as select * from redrive.search_outbox_events;
    revoke all on public.search_outbox_events from public;
    comment on view public.search_outbox_events is 'For producers: redrive.search_outbox_events, found without its schema.';
  end if;
end $$;
