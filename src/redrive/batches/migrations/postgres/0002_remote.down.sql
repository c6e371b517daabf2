drop table redrive.batches_item;
drop table redrive.batches_remote;
