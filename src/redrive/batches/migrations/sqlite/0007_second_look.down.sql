drop trigger redrive_batches_keep_paid;
drop table redrive_batches_paid;
drop index redrive_batches_parent;
alter table redrive_batches drop column parent;
