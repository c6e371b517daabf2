-- How many items of a settled batch ended how, so that lists need not count them.
alter table redrive_batches_remote add column completed integer not null default 0;
alter table redrive_batches_remote add column failed integer not null default 0;
alter table redrive_batches_remote add column cancelled integer not null default 0;
update redrive_batches_remote set completed = c.completed, failed = c.failed, cancelled = c.cancelled
from (
  select i.batch, sum(i.state = 'completed') as completed, sum(i.state = 'failed') as failed, sum(i.state = 'cancelled') as cancelled
  from redrive_batches_item i group by i.batch
) c
where c.batch = redrive_batches_remote.id and redrive_batches_remote.state in ('completed', 'failed', 'cancelled');
