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
