-- An inner batch belongs to its outer one, and to whom that is about.
alter table redrive_batches add column parent text;
create index redrive_batches_parent on redrive_batches (parent) where parent is not null;
-- What the books name is known as long as the books: what stays of a batch that was paid for when it is pruned.
create table redrive_batches_paid (
  id        text primary key,
  account   text not null,
  price     integer not null,
  round     integer not null,
  completed integer not null,
  captured  integer not null,
  released  integer not null
) without rowid;
create trigger redrive_batches_keep_paid before delete on redrive_batches_remote
when old.account is not null and old.state <> 'draft'
begin
  insert or ignore into redrive_batches_paid (id, account, price, round, completed, captured, released)
  values (old.id, old.account, old.price, old.round, old.completed, old.captured, old.released);
end;
-- That an item takes a place at its provider, though nobody has its job's id yet; that it waits for a place, as many jobs run as may,
-- or has stepped out of its lane, since its start fails; and that it has ended here without the provider's word, and the key of a start that may have gone out, by which a later one finds its job, and
-- with what the provider said when somebody asked afterwards.
alter table redrive_batches_item add column in_flight integer not null default 0;
alter table redrive_batches_item add column held integer not null default 0;
alter table redrive_batches_item add column stepped integer not null default 0;
alter table redrive_batches_item add column unknown integer not null default 0;
alter table redrive_batches_item add column start_key text;
alter table redrive_batches_item add column said text;
create index redrive_batches_item_in_flight on redrive_batches_item (batch) where in_flight and state = 'pending';
create index redrive_batches_item_held on redrive_batches_item (batch, brought_at, n) where held and state = 'pending';
create index redrive_batches_item_stepped on redrive_batches_item (batch, ordinal) where stepped and state = 'pending';
create index redrive_batches_item_unknown on redrive_batches_item (batch, n) where unknown;
-- What ran all the same, and nobody has paid for.
create index redrive_batches_item_ran on redrive_batches_item (batch, n) where said = 'succeeded' and state in ('failed', 'cancelled');
-- How many jobs of a batch may run at once; and when it ended, also where nothing was ever settled for want of money.
alter table redrive_batches_remote add column max_in_flight integer;
alter table redrive_batches_remote add column ended_at integer;
-- Since when it is being removed, in pieces: what is left of its items says nothing about it any more, and nobody acts on it.
alter table redrive_batches_remote add column pruned_at integer;
update redrive_batches_remote set ended_at = settled_at, settled_at = case when state = 'failed' and dispatched_at is null then null else settled_at end
where settled_at is not null;
-- How many places a provider has, as its workers were told (null: any number): whoever is asked what a batch waits for may have other
-- settings.
create table redrive_batches_flight (provider text primary key, most integer) without rowid;
-- What was made before knows whom it is about, too: inner batches, and what follows the end of one.
update redrive_batches set parent = j.on_complete ->> 'join'
from redrive_join j where j.id = redrive_batches.id and j.on_complete ->> 'join' is not null;
update redrive_join set
  on_complete = case when on_complete ->> 'scope' is null then json_set(on_complete, '$.scope', b.scope) else on_complete end,
  on_success = case when on_success ->> 'scope' is null then json_set(on_success, '$.scope', b.scope) else on_success end
from redrive_batches b where b.id = redrive_join.id and b.scope is not null and (on_complete is not null or on_success is not null);
update redrive_task set scope = b.scope from redrive_batches b
where redrive_task.facts ->> 'batch' = b.id and redrive_task.feature is null and redrive_task.scope is null and b.scope is not null;
-- Of whose account it is, is asked when that is erased.
create index redrive_batches_remote_account on redrive_batches_remote (account) where account is not null;
