-- The task that takes a batch further: while none is alive, a duty brings another.
alter table redrive.batches_remote add column step_task uuid;
