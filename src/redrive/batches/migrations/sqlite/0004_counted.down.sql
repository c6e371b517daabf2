alter table redrive_batches_remote drop column cancelled;
alter table redrive_batches_remote drop column failed;
alter table redrive_batches_remote drop column completed;
