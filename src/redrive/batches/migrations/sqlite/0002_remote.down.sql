drop table redrive_batches_item;
drop table redrive_batches_remote;
