drop index redrive.batches_parent;
alter table redrive.batches drop column parent;
