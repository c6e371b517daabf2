-- Gives an event the base of its key's life. A delete ends one; "create" behind it begins the next. "upsert" and "index" do not say
-- whether they create: with an old version they are marked, and the relay asks the source. Events that are replayed, or that a repair
-- publishes, have their base.
create or replace function redrive.outbox_life_of_event() returns trigger
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

create or replace trigger outbox_life before insert on redrive.task
  for each row when (new.kind like 'OUTBOX:%' and new.scope is not null and new.replay_count = 0)
  execute function redrive.outbox_life_of_event();
