alter table redrive_batches_remote drop column step_task;
