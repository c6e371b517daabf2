-- An inner batch belongs to its outer one, and to whom that is about.
alter table redrive.batches add column parent uuid;
create index batches_parent on redrive.batches (parent) where parent is not null;
-- What the books name is known as long as the books: what stays of a batch that was paid for when it is pruned.
create table redrive.batches_paid (
  id        uuid primary key,
  account   text not null,
  price     bigint not null,
  round     integer not null,
  completed integer not null,
  captured  bigint not null,
  released  bigint not null
);
create function redrive.batches_keep_paid() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.batches_paid (id, account, price, round, completed, captured, released)
  values (old.id, old.account, old.price, old.round, old.completed, old.captured, old.released) on conflict do nothing;
  return old;
end $$;
revoke all on function redrive.batches_keep_paid() from public;
create trigger batches_keep_paid before delete on redrive.batches_remote for each row
  when (old.account is not null and old.state <> 'draft') execute function redrive.batches_keep_paid();
-- That an item takes a place at its provider, though nobody has its job's id yet; that it waits for a place, as many jobs run as may,
-- or has stepped out of its lane, since its start fails; and that it has ended here without the provider's word, and the key of a start that may have gone out, by which a later one finds its job, and
-- with what the provider said when somebody asked afterwards.
alter table redrive.batches_item
  add column in_flight boolean not null default false,
  add column held boolean not null default false,
  add column stepped boolean not null default false,
  add column unknown boolean not null default false,
  add column start_key text,
  add column said text;
create index batches_item_in_flight on redrive.batches_item (batch) where in_flight and state = 'pending';
create index batches_item_held on redrive.batches_item (batch, brought_at, n) where held and state = 'pending';
create index batches_item_stepped on redrive.batches_item (batch, ordinal) where stepped and state = 'pending';
create index batches_item_unknown on redrive.batches_item (batch, n) where unknown;
-- What ran all the same, and nobody has paid for.
create index batches_item_ran on redrive.batches_item (batch, n) where said = 'succeeded' and state in ('failed', 'cancelled');
-- How many jobs of a batch may run at once; and when it ended, also where nothing was ever settled for want of money.
alter table redrive.batches_remote
  add column max_in_flight integer,
  add column ended_at timestamptz;
-- Since when it is being removed, in pieces: what is left of its items says nothing about it any more, and nobody acts on it.
alter table redrive.batches_remote add column pruned_at timestamptz;
update redrive.batches_remote set ended_at = settled_at, settled_at = case when state = 'failed' and dispatched_at is null then null else settled_at end
where settled_at is not null;
-- Who takes places at a provider holds its row: a lock that needs no right would let anybody keep everyone waiting. It says how many
-- there are (null: any number), since whoever is asked what a batch waits for may have other settings than the workers.
create table redrive.batches_flight (provider text primary key, most integer) with (fillfactor = 50);
-- Asks the provider about items that ended without its word.
insert into redrive.reserved_kind (begins, feature) values ('BATCH_RECONCILE', 'batches');
-- What was made before knows whom it is about, too: inner batches, and what follows the end of one.
update redrive.batches b set parent = (j.on_complete ->> 'join')::uuid
from redrive.task_join j where j.id = b.id and j.on_complete ->> 'join' is not null;
update redrive.task_join j set
  on_complete = case when j.on_complete ->> 'scope' is null then j.on_complete || jsonb_build_object('scope', b.scope) else j.on_complete end,
  on_success = case when j.on_success ->> 'scope' is null then j.on_success || jsonb_build_object('scope', b.scope) else j.on_success end
from redrive.batches b where b.id = j.id and b.scope is not null and (j.on_complete is not null or j.on_success is not null);
update redrive.task t set scope = b.scope from redrive.batches b
where t.facts ->> 'batch' = b.id::text and t.feature is null and t.scope is null and b.scope is not null;
-- A batch is about whom it was made for: by it a worker's role erases tasks that do not carry the scope themselves, so it gives a
-- batch no other scope than that of the erasure, and makes none of tasks that are there already.
create function redrive.guard_batch_scope() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() and (
    (tg_op = 'UPDATE' and coalesce(new.scope, '') not like 'erased:%')
    or exists (select 1 from redrive.task_join j where tg_op = 'INSERT' and j.id = new.id and j.created_at < now()))
  then
    raise exception 'role % may not say whom batch % is about', redrive.caller(), new.id using
      errcode = 'insufficient_privilege', hint = format('as the owner of the schema: select redrive.grant_api(%L)', redrive.caller());
  end if;
  return new;
end $$;
revoke all on function redrive.guard_batch_scope() from public;
create trigger guard_batch_new before insert on redrive.batches for each row execute function redrive.guard_batch_scope();
create trigger guard_batch_scope before update on redrive.batches for each row
  when (new.scope is distinct from old.scope or new.parent is distinct from old.parent) execute function redrive.guard_batch_scope();
create trigger guard_batch_scope before update on redrive.batches_remote for each row
  when (new.scope is distinct from old.scope or new.account is distinct from old.account) execute function redrive.guard_batch_scope();
create index batches_remote_account on redrive.batches_remote (account) where account is not null;
create function redrive.batches_meant(p_scope text, p_tasks uuid[], p_own uuid[]) returns setof uuid
language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive around as (
    select x.id as task, b.parent, b.scope from redrive.batches b join (
      select t.id, t.join_id from redrive.task t where t.id = any (p_tasks)
      union all select h.id, h.join_id from redrive.history h where h.id = any (p_tasks)) x on x.join_id = b.id
    union select a.task, b.parent, b.scope from around a join redrive.batches b on b.id = a.parent
  )
  select a.task from around a where a.scope = p_scope
  union all select n.id from (
    select h.id, substring(h.idempotency_key, '^redrive:webhook-event:batch-([0-9a-f-]{36})-[0-9]+$')::uuid as batch
    from redrive.history h where h.id = any (p_tasks) and h.kind = 'WEBHOOK_EVENT') n
  join redrive.batches_remote b on b.id = n.batch where b.scope = p_scope or b.account = p_scope
$$;
revoke all on function redrive.batches_meant(text, uuid[], uuid[]) from public;
comment on function redrive.batches_meant(text, uuid[], uuid[]) is 'For erasing: items of batches about a scope, also of inner ones, and what customers are told of remote ones';
