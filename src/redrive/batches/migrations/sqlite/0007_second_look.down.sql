drop index redrive_batches_parent;
alter table redrive_batches drop column parent;
