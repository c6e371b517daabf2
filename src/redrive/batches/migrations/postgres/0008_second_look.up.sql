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
