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
