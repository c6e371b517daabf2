-- Two items of a round that have one job at the provider are found.
create index batches_item_job on redrive.batches_item (batch, job) where job is not null;
