drop index redrive_batches_item_job;
