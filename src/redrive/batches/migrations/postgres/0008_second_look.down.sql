drop trigger batches_keep_paid on redrive.batches_remote;
drop function redrive.batches_keep_paid();
drop table redrive.batches_paid;
drop index redrive.batches_parent;
alter table redrive.batches drop column parent;
