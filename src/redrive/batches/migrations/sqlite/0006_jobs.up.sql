-- Two items of a round that have one job at the provider are found.
create index redrive_batches_item_job on redrive_batches_item (batch, job) where job is not null;
