drop index redrive.batches_item_job;
