create or replace function redrive.batches_keep_paid() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.batches_paid (id, account, price, round, completed, captured, released)
  values (old.id, old.account, old.price, old.round, old.completed, old.captured, old.released) on conflict do nothing;
  return old;
end $$;

create or replace trigger batches_keep_paid before delete on redrive.batches_remote for each row
  when (old.account is not null and old.state <> 'draft') execute function redrive.batches_keep_paid();
