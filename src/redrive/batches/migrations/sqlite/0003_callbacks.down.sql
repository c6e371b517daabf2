drop index redrive_batches_item_waiting;
drop index redrive_batches_item_called;
alter table redrive_batches_item drop column called;
