-- How many items of a settled batch ended how, so that lists need not count them.
alter table redrive.batches_remote
  add column completed integer not null default 0,
  add column failed integer not null default 0,
  add column cancelled integer not null default 0;
update redrive.batches_remote b set completed = c.completed, failed = c.failed, cancelled = c.cancelled
from (
  select i.batch, count(*) filter (where i.state = 'completed') as completed, count(*) filter (where i.state = 'failed') as failed,
    count(*) filter (where i.state = 'cancelled') as cancelled
  from redrive.batches_item i group by i.batch
) c
where c.batch = b.id and b.state in ('completed', 'failed', 'cancelled');
