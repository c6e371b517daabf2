delete from redrive.reserved_kind where begins = 'BATCH_RECONCILE';
update redrive.batches_remote set settled_at = coalesce(settled_at, ended_at);
alter table redrive.batches_remote drop column ended_at, drop column max_in_flight;
alter table redrive.batches_item drop column said, drop column start_key, drop column unknown, drop column stepped, drop column held, drop column begun;
drop trigger batches_keep_paid on redrive.batches_remote;
drop function redrive.batches_keep_paid();
drop table redrive.batches_paid;
drop index redrive.batches_parent;
alter table redrive.batches drop column parent;
