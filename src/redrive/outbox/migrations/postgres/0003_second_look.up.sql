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

create function redrive.publish_from_view() returns trigger
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
revoke all on function redrive.publish_from_view() from public;
drop trigger read_only on redrive.search_outbox_events;
create trigger read_only instead of update or delete on redrive.search_outbox_events
  for each row execute function redrive.refuse_change();
create trigger publish instead of insert on redrive.search_outbox_events
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

-- Lives of keys that were deleted: an entity that is created anew may begin with a version that it had before. Versions of a life count
-- from its base, which lies behind the delete that ended the life before. Whoever publishes has the entity's row, so deletes and creates
-- of a key come one after the other here, whatever arrives at the sink when.
create table redrive.outbox_life (
  projection  text not null,
  key         text collate "C" not null,
  base        bigint not null default 0,
  deleted     bigint,                     -- the version of the delete that ended it; null while it lasts
  changes     bigint not null default 0,  -- whoever acts on what was read a moment ago compares these
  changed_at  timestamptz not null default clock_timestamp(),
  primary key (projection, key)
);
create index outbox_life_pruned on redrive.outbox_life (changed_at) where deleted is not null or base = 0;
create index outbox_life_later on redrive.outbox_life (projection, key) where base > 0;  -- for verify, which compares lives

-- Gives an event the base of its key's life. A delete ends one; "create" behind it begins the next. "upsert" and "index" do not say
-- whether they create: with an old version they are marked, and the relay asks the source. Events that are replayed, or that a repair
-- publishes, have their base.
create function redrive.outbox_life_of_event() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_projection constant text := substr(new.kind, 8);
  v_op constant text := new.payload ->> 'op';
  v_given constant boolean := coalesce(new.payload ? 'base', false);
  v_version bigint;
  v_life redrive.outbox_life;
begin
  if jsonb_typeof(new.payload -> 'version') is distinct from 'number' or new.payload ->> 'version' !~ '^[0-9]{1,18}$' then
    return new;  -- the relay refuses it, or it is too large to have a life behind it
  end if;
  v_version := (new.payload ->> 'version')::bigint;
  if v_op = 'delete' then
    insert into redrive.outbox_life as l (projection, key, base, deleted)
    values (v_projection, new.scope, coalesce((new.payload ->> 'base')::bigint, 0), v_version)
    on conflict (projection, key) do update set base = greatest(l.base, excluded.base), deleted = greatest(l.deleted, excluded.deleted),
      changes = l.changes + 1, changed_at = clock_timestamp()
    where not v_given or l.base <= excluded.base
    returning * into v_life;
  elsif not v_given then
    select * into v_life from redrive.outbox_life l where l.projection = v_projection and l.key = new.scope;
    if v_life.deleted < v_version and v_op in ('create', 'upsert', 'index', 'update') then  -- newer than the delete
      update redrive.outbox_life l set deleted = null, changes = l.changes + 1, changed_at = clock_timestamp()
      where l.projection = v_projection and l.key = new.scope;
    elsif v_op = 'create' and v_life.deleted < 4611686018427387904 - v_life.base then  -- else there is no room for another
      update redrive.outbox_life l set base = l.base + l.deleted + 1, deleted = null, changes = l.changes + 1,
        changed_at = clock_timestamp()
      where l.projection = v_projection and l.key = new.scope returning * into v_life;
    elsif v_life.deleted is not null and v_op in ('upsert', 'index') then
      new.payload := new.payload || '{"after_delete": true}';
    end if;
  end if;
  if v_life.base > 0 and not v_given then
    new.payload := new.payload || jsonb_build_object('base', v_life.base);
  end if;
  return new;
end $$;
revoke all on function redrive.outbox_life_of_event() from public;
create trigger outbox_life before insert on redrive.task
  for each row when (new.kind like 'OUTBOX:%' and new.scope is not null and new.replay_count = 0)
  execute function redrive.outbox_life_of_event();
