drop index redrive.batches_item_waiting;
drop index redrive.batches_item_called;
alter table redrive.batches_item drop column called;
