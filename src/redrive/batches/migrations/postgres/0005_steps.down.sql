alter table redrive.batches_remote drop column step_task;
