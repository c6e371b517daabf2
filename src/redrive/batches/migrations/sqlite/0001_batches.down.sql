drop table redrive_batches;
