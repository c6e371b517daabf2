-- Versions of deleted documents, for sinks that forget them. The key is a digest: nothing here says who it was.
create table redrive_outbox_tombstone (
  projection  text not null,
  key_digest  text not null,
  version     integer not null,
  deleted_at  integer not null default (unixepoch() * 1000000),
  primary key (projection, key_digest)
) strict, without rowid;
create index redrive_outbox_tombstone_deleted on redrive_outbox_tombstone (deleted_at);

-- Publishing from SQL, for triggers and other programs that have the file open: what is inserted here becomes an event, in the
-- transaction of whoever inserts it.
--   insert into redrive_outbox_publish (projection, entity_type, entity_id, op, version, payload)
--   values ('notes', 'note', '17', 'upsert', 3, '{"title": "Milk"}');
create view redrive_outbox_publish as
  select null as projection, null as entity_type, null as entity_id, null as op, null as version, null as payload,
    null as routing, null as max_attempts
  where false;

create trigger redrive_outbox_publish_event instead of insert on redrive_outbox_publish begin
  select raise(abort, 'the name of a projection has 1-100 letters, digits, _, -, . or :') where new.projection is null
    or length(new.projection) not between 1 and 100 or new.projection glob '*[^A-Za-z0-9_.:-]*'
    or new.projection not glob '[A-Za-z0-9_]*';
  select raise(abort, 'the entity type of an event is a word without a colon') where coalesce(new.entity_type, '') = ''
    or instr(new.entity_type, ':') > 0;
  select raise(abort, 'the entity of an event has no id') where coalesce(new.entity_id, '') = '';
  select raise(abort, 'entity type and id of an event must be at most 512 characters, without control characters')
    where length(new.entity_type) + length(new.entity_id) > 511
      or (new.entity_type || new.entity_id) glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
  select raise(abort, 'op of an event must be a word such as upsert or delete') where coalesce(new.op, '') = '' or length(new.op) > 40;
  select raise(abort, 'the version of an event is a whole number from 0 on') where typeof(new.version) <> 'integer' or new.version < 0;
  select raise(abort, 'the payload of an event is JSON') where new.payload is not null and not json_valid(new.payload);
  update redrive_position set value = value + 1 where one = 1;
  insert into redrive_task (id, created_at, position, state, max_attempts, kind, queue, lane, scope, payload)
  select substr(v.ms, 1, 8) || '-' || substr(v.ms, 9, 4) || '-7' || substr(v.bits, 1, 3) || '-'
      || substr('89ab', 1 + (random() & 3), 1) || substr(v.bits, 4, 3) || '-' || substr(v.bits, 7, 12),
    v.now * 1000, (select p.value from redrive_position p where p.one = 1), 'queued', coalesce(new.max_attempts, 10),
    'OUTBOX:' || new.projection, 'outbox:' || new.projection,
    coalesce((select k.kind from redrive_kind k where k.kind = 'OUTBOX:' || new.projection), ''),
    new.entity_type || ':' || new.entity_id,
    case when new.routing is null then json_object('entity_type', cast(new.entity_type as text), 'entity_id', cast(new.entity_id as text),
      'op', cast(new.op as text), 'version', new.version, 'payload', json(new.payload))
    else json_object('entity_type', cast(new.entity_type as text), 'entity_id', cast(new.entity_id as text), 'op', cast(new.op as text),
      'version', new.version, 'payload', json(new.payload), 'routing', cast(new.routing as text)) end
  from (
    select n.now, printf('%012x', n.now) as ms, lower(hex(randomblob(9))) as bits
    from (select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as now) n
  ) v;
  insert into redrive_total (queue, kind, queued) values ('outbox:' || new.projection, 'OUTBOX:' || new.projection, 1)
  on conflict (queue, kind) do update set queued = queued + 1;
end;

-- "where processed_at is null" of search_outbox_events reads live events alone, however many are done: history answers from
-- this index that it has none. The expression is the view's.
create index redrive_history_outbox_processed on redrive_history (strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch'))
  where state = 'completed' and kind glob 'OUTBOX:*';

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
      coalesce(e.last_replayed_at, 0)) / 1e6, 'unixepoch') as updated_at,
    substr(e.kind, 8) as projection
  from (
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'pending' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive_task t where t.state = 'queued' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'pending' as status,
      t.attempt_count as attempts, t.next_attempt_at as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive_task t where t.state = 'delayed' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'processing' as status,
      t.attempt_count as attempts, null as next_retry_at, t.lease_expires_at as lease_until, t.last_attempt_at as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive_task t where t.state = 'running' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'paused' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind
    from redrive_task t where t.state = 'paused' and t.kind glob 'OUTBOX:*'
    union all
    select t.id, t.scope, case when json_valid(t.payload) then t.payload end as payload, 'failed' as status,
      t.attempt_count as attempts, null as next_retry_at, null as lease_until, null as processing_started_at,
      t.error_reason, t.error_message as error, t.replay_count, t.last_replayed_at, t.last_replayed_by, t.last_replayed_reason,
      t.created_at, t.last_attempt_at, t.failed_at, t.kind
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
    strftime('%Y-%m-%dT%H:%M:%fZ', e.finished_at / 1e6, 'unixepoch'), substr(e.kind, 8)
  from (
    select h.id, h.scope, case when json_valid(h.result) then h.result end as event, 'done' as status, h.attempt_count,
      h.last_attempt_at, h.finished_at, null as error, h.replay_count, h.created_at,
      case when h.replay_count > 0 then (
        select max(a.id) from redrive_audit a
        where a.task_id = h.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')) end as replay, h.kind
    from redrive_history h where h.state = 'completed' and h.kind glob 'OUTBOX:*'
    union all
    select h.id, h.scope, case when json_valid(h.payload) then h.payload end as event, 'cancelled' as status, h.attempt_count,
      h.last_attempt_at, h.finished_at, h.cancel_reason as error, h.replay_count, h.created_at,
      case when h.replay_count > 0 then (
        select max(a.id) from redrive_audit a
        where a.task_id = h.id and a.action in ('TASK_RETRY', 'TASK_RETRY_BATCH_ITEM')) end as replay, h.kind
    from redrive_history h where h.state = 'cancelled' and h.kind glob 'OUTBOX:*'
  ) e left join redrive_audit r on r.id = e.replay;

-- only where: select 1 from sqlite_master where type = 'view' and name = 'search_outbox_events'
create trigger redrive_outbox_events_publish instead of insert on search_outbox_events begin
  select raise(abort, 'an event begins as pending, and redrive sets the rest: insert projection, entity_type, entity_id, op, event_version and status')
  where coalesce(new.status, 'pending') <> 'pending' or coalesce(new.attempts, 0) <> 0 or coalesce(new.replay_count, 0) <> 0
    or coalesce(new.id, new.next_retry_at, new.lease_until, new.processing_started_at, new.processed_at, new.error_reason, new.error,
      new.last_replayed_at, new.last_replayed_by, new.last_replayed_reason, new.created_at, new.updated_at) is not null;
  insert into redrive_outbox_publish (projection, entity_type, entity_id, op, version)
  values (coalesce(new.projection, 'search_index_to_elastic'), new.entity_type, new.entity_id, new.op, new.event_version);
end;

-- Lives of keys that were deleted: an entity that is created anew may begin with a version that it had before. Versions of a life count
-- from its base, which lies behind the delete that ended the life before. Whoever publishes has the file, so deletes and creates of a
-- key come one after the other here, whatever arrives at the sink when.
create table redrive_outbox_life (
  projection  text not null,
  key         text not null,
  base        integer not null default 0,
  deleted     integer,                             -- the version of the delete that ended it; null while it lasts
  changes     integer not null default 0,          -- whoever acts on what was read a moment ago compares these
  changed_at  integer not null default (unixepoch() * 1000000),
  primary key (projection, key)
) strict, without rowid;
create index redrive_outbox_life_pruned on redrive_outbox_life (changed_at) where deleted is not null or base = 0;
create index redrive_outbox_life_later on redrive_outbox_life (projection, key) where base > 0;  -- for verify, which compares lives

-- A delete ends a life, also the first, of which nothing is known here.
create trigger redrive_outbox_life_first after insert on redrive_task
when new.kind >= 'OUTBOX:' and new.kind < 'OUTBOX;' and new.scope is not null and new.replay_count = 0 and json_valid(new.payload)
  and json_extract(new.payload, '$.op') = 'delete' and json_type(new.payload, '$.version') = 'integer'
  and json_extract(new.payload, '$.version') < 1000000000000000000 and not exists (
    select 1 from redrive_outbox_life l where l.projection = substr(new.kind, 8) and l.key = new.scope)
begin
  insert into redrive_outbox_life (projection, key, base, deleted)
  values (substr(new.kind, 8), new.scope, coalesce(json_extract(new.payload, '$.base'), 0), json_extract(new.payload, '$.version'));
end;

-- Gives an event the base of its key's life. "create" behind a delete begins the next one. "upsert" and "index" do not say whether they
-- create: with an old version they are marked, and the relay asks the source. Events that are replayed, or that a repair publishes, have their
-- base.
create trigger redrive_outbox_life_of_event after insert on redrive_task
when new.kind >= 'OUTBOX:' and new.kind < 'OUTBOX;' and new.scope is not null and new.replay_count = 0
  and exists (select 1 from redrive_outbox_life l where l.projection = substr(new.kind, 8) and l.key = new.scope)
  and json_valid(new.payload) and json_type(new.payload, '$.version') = 'integer'
  and json_extract(new.payload, '$.version') < 1000000000000000000
  and (json_type(new.payload, '$.base') is null or json_extract(new.payload, '$.op') = 'delete')
begin
  update redrive_task set payload = json_set(payload, '$.after_delete', json('true')) where rowid = new.rowid
    and json_extract(new.payload, '$.op') in ('upsert', 'index') and exists (
      select 1 from redrive_outbox_life l where l.projection = substr(new.kind, 8) and l.key = new.scope
        and l.deleted >= json_extract(new.payload, '$.version'));
  update redrive_outbox_life set changes = changes + 1, changed_at = unixepoch() * 1000000,
    base = max(base, coalesce(json_extract(new.payload, '$.base'), 0)),
    deleted = max(coalesce(deleted, 0), json_extract(new.payload, '$.version'))
  where projection = substr(new.kind, 8) and key = new.scope and json_extract(new.payload, '$.op') = 'delete'
    and base <= coalesce(json_extract(new.payload, '$.base'), base);
  update redrive_outbox_life set changes = changes + 1, changed_at = unixepoch() * 1000000, deleted = null,
    base = case when deleted < json_extract(new.payload, '$.version') then base else base + deleted + 1 end
  where projection = substr(new.kind, 8) and key = new.scope and deleted < 4611686018427387904 - base -- else there is no room for another
    and ((deleted >= json_extract(new.payload, '$.version') and json_extract(new.payload, '$.op') = 'create')
      or (deleted < json_extract(new.payload, '$.version')
        and json_extract(new.payload, '$.op') in ('create', 'upsert', 'index', 'update')));
  update redrive_task set payload = json_set(payload, '$.base', (
      select l.base from redrive_outbox_life l where l.projection = substr(new.kind, 8) and l.key = new.scope))
  where rowid = new.rowid and json_type(new.payload, '$.base') is null and exists (
    select 1 from redrive_outbox_life l where l.projection = substr(new.kind, 8) and l.key = new.scope and l.base > 0);
end;
