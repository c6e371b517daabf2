-- made: a new batch
insert into redrive_batches (id, name, key, digest, meta, scope, created_by)
select v.value ->> 'id', v.value ->> 'name', v.value ->> 'key', v.value ->> 'digest', v.value ->> 'meta', v.value ->> 'scope', v.value ->> 'by'
from json_each(?1) v

-- added: somebody is still at it
update redrive_batches set added_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer)
where id in (select v.value ->> 'id' from json_each(?1) v)

-- sealed: everything was added; what it was given, where it has a key
update redrive_batches set digest = x.digest
from (select v.value ->> 'id' as id, v.value ->> 'digest' as digest from json_each(?1) v) x where redrive_batches.id = x.id

-- asked: an operation is to cancel it, when a second operator agrees
update redrive_batches set cancel_operation = x.operation, cancelled_by = x.by, cancel_reason = x.reason
from (select v.value ->> 'id' as id, v.value ->> 'operation' as operation, v.value ->> 'by' as "by", v.value ->> 'reason' as reason
  from json_each(?1) v) x where redrive_batches.id = x.id

-- cancelled: it takes no more items; its key is free again where its maker gave it up
update redrive_batches set cancelled_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer),
  cancel_operation = coalesce(x.operation, cancel_operation), cancelled_by = coalesce(x.by, cancelled_by),
  cancel_reason = coalesce(x.reason, cancel_reason), key = case when x.given_up then null else key end
from (select v.value ->> 'id' as id, v.value ->> 'operation' as operation, v.value ->> 'by' as "by", v.value ->> 'reason' as reason,
  v.value ->> 'given_up' as given_up from json_each(?1) v) x where redrive_batches.id = x.id and redrive_batches.cancelled_at is null

-- by_id: a batch, with the counts of its join
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive_batches b join redrive_join j on j.id = b.id where b.id = ?1

-- by_key: the batch of a key
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive_batches b join redrive_join j on j.id = b.id where b.key = ?1

-- listed: the latest, before an id (?1) and of a state (?2) if these are given, so many (?3)
select x.* from (select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault,
  case when b.cancelled_at is not null then 'cancelled'
    when j.is_open = 1 or j.completed + j.failed + j.cancelled < j.total then 'processing'
    when j.completed = j.total then 'completed' when j.failed > 0 then 'failed' else 'cancelled' end as state
from redrive_batches b join redrive_join j on j.id = b.id) x
where (?1 is null or x.id < ?1) and (?2 is null or x.state = ?2) order by x.id desc limit ?3

-- unended: those that have not ended, the oldest first
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive_join j join redrive_batches b on b.id = j.id where j.ended_at is null order by j.created_at limit ?1

-- open_ones: how many take items, for how many seconds the oldest has, and how many have not ended
select count(*) filter (where x.is_open = 1) as n, coalesce((cast((julianday('now') - 2440587.5) * 86400000000 as integer) - min(x.created_at) filter (where x.is_open = 1)) / 1e6, 0) as age, count(*) as unended from (
  select b.created_at, j.is_open from redrive_join j join redrive_batches b on b.id = j.id
  where j.ended_at is null order by j.created_at limit 1000) x

-- forgotten: open ones that nobody has added to for so many hours
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive_join j join redrive_batches b on b.id = j.id where j.ended_at is null and j.is_open = 1
  and b.added_at <= cast((julianday('now') - 2440587.5) * 86400000000 as integer) - ?1 * 3600000000 order by b.added_at limit 100

-- asked_ones: those that an operation is to cancel
select id, cancel_operation from redrive_batches where cancel_operation is not null and cancelled_at is null order by id limit 100

-- failures: items that are failed now by type, code and cause, of the latest ten thousand
select failure_type, error_code, error_fingerprint, count(*) as n, max(failed_at) as last from (
  select failure_type, error_code, error_fingerprint, failed_at from redrive_task
  where join_id = ?1 and state = 'failed' order by failed_seq desc limit 10000) x
group by failure_type, error_code, error_fingerprint order by n desc, error_fingerprint limit 200

-- prune_batches: those whose joins are gone, so many at once
delete from redrive_batches where id in (
  select b.id from redrive_batches b where b.created_at < ?1 and not exists (select 1 from redrive_join j where j.id = b.id)
  order by b.created_at limit ?2)

-- personal: how many are about a scope
select count(*) as n from redrive_batches where scope = ?1 ->> 'scope'

-- erase: the same, emptied, so many at once
update redrive_batches set name = null, key = null, digest = null, meta = null, cancel_reason = null, scope = ?1 ->> 'tombstone' where id in (
  select id from redrive_batches where scope = ?1 ->> 'scope' limit (?1 ->> 'limit'))
