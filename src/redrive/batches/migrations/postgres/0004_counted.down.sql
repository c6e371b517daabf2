alter table redrive.batches_remote drop column completed, drop column failed, drop column cancelled;
