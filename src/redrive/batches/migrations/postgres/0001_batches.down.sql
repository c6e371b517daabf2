drop table redrive.batches;
