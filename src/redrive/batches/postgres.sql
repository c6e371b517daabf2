-- made: a new batch
insert into redrive.batches (id, name, key, digest, meta, scope, created_by)
select x.id, x.name, x.key, x.digest, x.meta, x.scope, x.by
from jsonb_to_recordset($1) x(id uuid, name text, key text, digest text, meta text, scope text, by text)

-- added: somebody is still at it
update redrive.batches b set added_at = clock_timestamp() from jsonb_to_recordset($1) x(id uuid) where b.id = x.id

-- sealed: everything was added; what it was given, where it has a key
update redrive.batches b set digest = x.digest from jsonb_to_recordset($1) x(id uuid, digest text) where b.id = x.id

-- asked: an operation is to cancel it, when a second operator agrees
update redrive.batches b set cancel_operation = x.operation, cancelled_by = x.by, cancel_reason = x.reason
from jsonb_to_recordset($1) x(id uuid, operation text, by text, reason text) where b.id = x.id

-- cancelled: it takes no more items; its key is free again where its maker gave it up
update redrive.batches b set cancelled_at = clock_timestamp(), cancel_operation = coalesce(x.operation, b.cancel_operation),
  cancelled_by = coalesce(x.by, b.cancelled_by), cancel_reason = coalesce(x.reason, b.cancel_reason),
  key = case when x.given_up then null else b.key end
from jsonb_to_recordset($1) x(id uuid, operation text, by text, reason text, given_up boolean) where b.id = x.id and b.cancelled_at is null

-- by_id: a batch, with the counts of its join
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive.batches b join redrive.task_join j on j.id = b.id where b.id = $1

-- by_key: the batch of a key
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive.batches b join redrive.task_join j on j.id = b.id where b.key = $1

-- listed: the latest, before an id ($1) and of a state ($2) if these are given, so many ($3)
select x.* from (select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault,
  case when b.cancelled_at is not null then 'cancelled'
    when j.is_open or j.completed + j.failed + j.cancelled < j.total then 'processing'
    when j.completed = j.total then 'completed' when j.failed > 0 then 'failed' else 'cancelled' end as state
from redrive.batches b join redrive.task_join j on j.id = b.id) x
where ($1::uuid is null or x.id < $1) and ($2::text is null or x.state = $2) order by x.id desc limit $3

-- unended: those that have not ended, the oldest first
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive.task_join j join redrive.batches b on b.id = j.id where j.ended_at is null order by j.created_at limit $1

-- open_ones: how many take items, for how many seconds the oldest has, and how many have not ended
select count(*) filter (where x.is_open) as n, coalesce(extract(epoch from clock_timestamp() - min(x.created_at) filter (where x.is_open)), 0)::double precision as age, count(*) as unended from (
  select b.created_at, j.is_open from redrive.task_join j join redrive.batches b on b.id = j.id
  where j.ended_at is null order by j.created_at limit 1000) x

-- forgotten: open ones that nobody has added to for so many hours
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive.task_join j join redrive.batches b on b.id = j.id where j.ended_at is null and j.is_open
  and b.added_at <= clock_timestamp() - $1::double precision * interval '1 hour' order by b.added_at limit 100

-- asked_ones: those that an operation is to cancel
select id, cancel_operation from redrive.batches where cancel_operation is not null and cancelled_at is null order by id limit 100

-- failures: items that are failed now by type, code and cause, of the latest ten thousand
select failure_type, error_code, error_fingerprint, count(*) as n, max(failed_at) as last from (
  select failure_type, error_code, error_fingerprint, failed_at from redrive.task
  where join_id = $1 and state = 'failed' order by failed_seq desc limit 10000) x
group by failure_type, error_code, error_fingerprint order by n desc, error_fingerprint limit 200

-- prune_batches: those whose joins are gone, so many at once
delete from redrive.batches where id = any (array(
  select b.id from redrive.batches b where b.created_at < $1 and not exists (select 1 from redrive.task_join j where j.id = b.id)
  order by b.created_at limit $2))

-- personal: how many are about a scope
select count(*) as n from redrive.batches where scope = $1::jsonb ->> 'scope'

-- erase: the same, emptied, so many at once
update redrive.batches set name = null, key = null, digest = null, meta = null, cancel_reason = null, scope = $1::jsonb ->> 'tombstone' where id = any (array(
  select id from redrive.batches where scope = $1::jsonb ->> 'scope' limit ($1::jsonb ->> 'limit')::bigint))
