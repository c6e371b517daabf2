-- Providers may call when a job has ended: 1 when one did and nobody has looked since, 2 when somebody has.
alter table redrive.batches_item add column called integer not null default 0;
create index batches_item_called on redrive.batches_item (batch, n) where called = 1 and state = 'processing';
-- Those that wait or run, the longest first.
create index batches_item_waiting on redrive.batches_item (coalesce(started_at, brought_at)) where state in ('pending', 'processing') and task_id is not null;
