drop table redrive_batches_flight;
drop table redrive_batches_paid;
drop table redrive_batches_item;
drop table redrive_batches_remote;
drop table redrive_batches;
