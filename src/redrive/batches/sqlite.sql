-- made: a new batch
insert into redrive_batches (id, name, key, digest, meta, scope, created_by, parent)
select v.value ->> 'id', v.value ->> 'name', v.value ->> 'key', v.value ->> 'digest', v.value ->> 'meta', v.value ->> 'scope', v.value ->> 'by',
  v.value ->> 'parent'
from json_each(?1) v

-- added: somebody is still at it
update redrive_batches set added_at = unixepoch() * 1000000
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

-- open_ones: how many take items, for how many seconds the oldest has, how many have not ended, and how many remote ones have not, each up to so many (?1)
select count(*) filter (where x.is_open = 1) as n, coalesce((cast((julianday('now') - 2440587.5) * 86400000000 as integer) - min(x.created_at) filter (where x.is_open = 1)) / 1e6, 0) as age, count(*) as unended,
  (select count(*) from (select 1 from redrive_batches_remote where state in ('queued', 'processing') and state in ('draft', 'queued', 'processing') limit ?1) r) as unsettled from (
  select b.created_at, j.is_open from redrive_join j join redrive_batches b on b.id = j.id
  where j.ended_at is null order by j.created_at limit ?1) x

-- forgotten: open ones that nobody has added to for so many hours
select b.*, j.total, j.completed, j.failed, j.cancelled, j.is_open as open, j.ended_at, j.succeeded_at, j.fault
from redrive_join j join redrive_batches b on b.id = j.id where j.ended_at is null and j.is_open = 1
  and b.added_at < (unixepoch() + 1 - ?1 * 3600) * 1000000 order by b.added_at limit 100

-- asked_ones: those that an operation is to cancel
select id, cancel_operation from redrive_batches where cancel_operation is not null and cancelled_at is null order by id limit 100

-- failures: items that are failed now by type, code and cause, of the latest ten thousand
select failure_type, error_code, error_fingerprint, count(*) as n, max(failed_at) as last from (
  select failure_type, error_code, error_fingerprint, failed_at from redrive_task
  where join_id = ?1 and state = 'failed' order by failed_seq desc limit 10000) x
group by failure_type, error_code, error_fingerprint order by n desc, error_fingerprint limit 200

-- failed_over: items that are failed now by type since a time (?2, in seconds), by stretches of so many seconds (?3), of the latest ten thousand
select cast((failed_at / 1000000.0 - ?2) / ?3 as integer) as stretch, failure_type, count(*) as n from (
  select failure_type, failed_at from redrive_task where join_id = ?1 and state = 'failed' order by failed_seq desc limit 10000) x
group by 1, 2

-- prune_batches: those whose joins are gone, so many at once
delete from redrive_batches where id in (
  select b.id from redrive_batches b where b.created_at < ?1 and not exists (select 1 from redrive_join j where j.id = b.id)
  order by b.created_at limit ?2)

-- personal: how many are about a scope
with recursive own as (
  select id from redrive_batches where scope = ?1 ->> 'scope'
  union select b.id from own cross join redrive_batches b on b.parent = own.id
)
select (select count(*) from redrive_batches b where b.id in (select id from own) and (b.scope is null or b.scope not like 'erased:%'))
  + (select count(*) from redrive_batches_remote where scope = ?1 ->> 'scope')
  + (select count(*) from redrive_batches_item i where (i.payload is not null or i.result is not null or i.error_message is not null)
    and (i.batch in (select b.id from redrive_batches_remote b where b.scope = ?1 ->> 'scope')
      or i.task_id in (select value from json_each(?1, '$.tasks')))) as n

-- erase: the same, emptied, so many at once; inner ones before the outer ones by which they are found
with recursive own as (
  select id from redrive_batches where scope = ?1 ->> 'scope'
  union select b.id from own cross join redrive_batches b on b.parent = own.id
)
update redrive_batches set name = null, key = null, digest = null, meta = null, cancel_reason = null, scope = ?1 ->> 'tombstone' where id in (
  select b.id from redrive_batches b where b.id in (select id from own) and (b.scope is null or b.scope not like 'erased:%')
  order by b.parent is not null desc limit (?1 ->> 'limit'))

-- belonging: tasks of batches of a scope, those that run last, and what customers are told of the remote ones, those of an account too
with recursive own as (
  select id from redrive_batches where scope = ?1 ->> 'scope'
  union select b.id from own cross join redrive_batches b on b.parent = own.id
), rounds as (
  select id, round from redrive_batches_remote where scope = ?1 ->> 'scope' or account = ?1 ->> 'scope'
  union all select id, round - 1 from rounds where round > 1
)
select id from (select h.id from own cross join redrive_history h on h.join_id = own.id where h.erased_at is null limit (?1 ->> 'limit'))
union all select id from (select t.id from own cross join redrive_task t on t.join_id = own.id where t.state <> 'running' limit (?1 ->> 'limit'))
union all select id from (select t.id from own cross join redrive_task t on t.join_id = own.id where t.state = 'running' limit (?1 ->> 'limit'))
union all select id from (select k.task_id as id from rounds r cross join redrive_idempotency_key k
  on k.key = 'redrive:webhook-event:batch-' || r.id || '-' || r.round limit (?1 ->> 'limit'))

-- remote_draft: a remote batch that is being filled
insert into redrive_batches_remote (id, name, meta, scope, provider, account, price, webhook_url, max_in_flight, created_by)
select v.value ->> 'id', v.value ->> 'name', v.value ->> 'meta', v.value ->> 'scope', v.value ->> 'provider', v.value ->> 'account',
  v.value ->> 'price', v.value ->> 'webhook_url', v.value ->> 'max_in_flight', v.value ->> 'by' from json_each(?1) v

-- items_added: items of a draft
insert into redrive_batches_item (batch, n, ordinal, payload)
select v.value ->> 'batch', v.value ->> 'n', v.value ->> 'n', v.value ->> 'payload' from json_each(?1) v

-- remote_queued: all items are there; nothing lands where it was so old that they are being removed, for want of a version
update redrive_batches_remote set state = 'queued', version = case when redrive_batches_remote.pruned_at is null then redrive_batches_remote.version end, key = x.key, digest = x.digest, items = x.items, in_round = x.items, step_task = x.step_task
from (select v.value ->> 'id' as id, v.value ->> 'key' as key, v.value ->> 'digest' as digest, v.value ->> 'items' as items, v.value ->> 'step_task' as step_task
  from json_each(?1) v) x where redrive_batches_remote.id = x.id and redrive_batches_remote.state = 'draft'

-- items_dropped: those of a draft that is given up
delete from redrive_batches_item where batch in (
  select b.id from redrive_batches_remote b where b.state = 'draft' and b.id in (select v.value ->> 'id' from json_each(?1) v))

-- remote_dropped: a draft that is given up
delete from redrive_batches_remote where state = 'draft' and id in (select v.value ->> 'id' from json_each(?1) v)

-- remote_moved: a batch as it is from now on, if nobody has changed it since it was read: else nothing of the Commit lands, for want of a version
update redrive_batches_remote set version = case when redrive_batches_remote.version = x.version then redrive_batches_remote.version + 1 end,
  state = x.state, reason = x.reason, round = x.round, in_round = x.in_round, join_id = x.join_id, step_task = x.step_task,
  frozen = x.frozen, captured = x.captured, released = x.released,
  dispatched_at = case x.dispatched when 'now' then unixepoch() * 1000000 when 'no' then null else dispatched_at end,
  settled_at = case x.settled when 'now' then unixepoch() * 1000000 when 'no' then null else settled_at end,
  ended_at = case coalesce(x.ended, x.settled) when 'now' then unixepoch() * 1000000 when 'no' then null else ended_at end,
  cancelled_at = case x.cancelled when 'now' then unixepoch() * 1000000 when 'no' then null else cancelled_at end, cancelled_by = x.cancelled_by
from (select v.value ->> 'id' as id, v.value ->> 'version' as version, v.value ->> 'state' as state, v.value ->> 'reason' as reason,
  v.value ->> 'round' as round, v.value ->> 'in_round' as in_round, v.value ->> 'join_id' as join_id, v.value ->> 'step_task' as step_task,
  v.value ->> 'frozen' as frozen, v.value ->> 'captured' as captured, v.value ->> 'released' as released,
  v.value ->> 'dispatched' as dispatched, v.value ->> 'settled' as settled, v.value ->> 'ended' as ended, v.value ->> 'cancelled' as cancelled, v.value ->> 'cancelled_by' as cancelled_by
  from json_each(?1) v) x where redrive_batches_remote.id = x.id

-- items_brought: items whose turn has come, with their tasks
update redrive_batches_item set task_id = x.task, brought_at = unixepoch() * 1000000
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'ordinal' as ordinal, v.value ->> 'task' as task from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.round = x.round and redrive_batches_item.ordinal = x.ordinal
  and redrive_batches_item.task_id is null and redrive_batches_item.state = 'pending'

-- items_moved: what became of items, by their tasks. Of a batch that is settled only what was said is kept, as late
update redrive_batches_item as i set
  state = case when x.open then x.state else i.state end, late = case when not x.open and (x.result is not null or x.code is not null) then 1 else i.late end,
  job = case when x.anew then case when i.unknown then i.job end else coalesce(x.job, i.job) end,
  progress = case when x.anew then null else coalesce(x.progress, i.progress) end,
  poll_count = case when x.anew then 0 else coalesce(x.polls, i.poll_count) + (x.last is not null and i.job is not null) end,
  last_poll_at = case when x.polled or (x.last and i.job is not null) then unixepoch() * 1000000 else i.last_poll_at end,
  brought_at = case when x.anew then unixepoch() * 1000000 else i.brought_at end,
  called = case when x.anew then 0 when x.heard then 2 else i.called end,
  started_at = case when x.anew then null when x.job is not null then coalesce(i.started_at, unixepoch() * 1000000) else i.started_at end,
  ended_at = case when x.ended then unixepoch() * 1000000 when x.open then null else i.ended_at end,
  result = coalesce(x.result, i.result), error_code = case when x.open or x.code is not null then x.code else i.error_code end,
  error_message = case when x.open or x.code is not null then x.message else i.error_message end,
  failure_type = case when x.open or x.code is not null then x.type else i.failure_type end,
  in_flight = i.in_flight and coalesce(x.unsure, 1) and not (coalesce(x.anew, 0) or coalesce(x.ended, 0)),
  held = coalesce(x.held, 0),
  stepped = coalesce(x.stepped, 0) or (i.stepped and not coalesce(x.anew, 0)),
  unknown = case when not x.open then i.unknown else coalesce(x.ended, 0) and coalesce(x.unknown, x.wordless and (coalesce(x.job, i.job) is not null or i.start_key is not null or coalesce(x.tried, 0)), 0) end,
  said = case when x.anew then null else i.said end,
  -- The key of a start whose job may be there is the one of the next start, too; after the provider's word there is a new one. One that a worker of the version before made is not here yet.
  start_key = case when not x.open then i.start_key when x.anew then case when i.unknown then i.start_key end when not coalesce(x.ended, 0) then case when coalesce(x.unsure, 1) then i.start_key end
    when coalesce(x.unknown, x.wordless and (coalesce(x.job, i.job) is not null or i.start_key is not null or coalesce(x.tried, 0)), 0) then coalesce(i.start_key, i.batch || '-' || i.n || ':' || i.round || case when x.replays > 0 then ':r' || x.replays else '' end) end
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'ordinal' as ordinal, v.value ->> 'state' as state,
    v.value ->> 'job' as job, v.value ->> 'progress' as progress, v.value ->> 'polls' as polls, v.value ->> 'polled' as polled, v.value ->> 'heard' as heard,
    v.value ->> 'anew' and b.state = 'processing' as anew, v.value ->> 'ended' as ended, v.value ->> 'last' as last, v.value ->> 'result' as result, v.value ->> 'code' as code,
    v.value ->> 'message' as message, v.value ->> 'type' as type, b.state = 'processing' as open, v.value ->> 'unsure' as unsure, v.value ->> 'held' as held, v.value ->> 'stepped' as stepped,
    v.value ->> 'unknown' as unknown, v.value ->> 'wordless' as wordless, v.value ->> 'tried' as tried, v.value ->> 'replays' as replays
  from json_each(?1) v join redrive_batches_remote b on b.id = v.value ->> 'batch') x
where i.batch = x.batch and i.round = x.round and i.ordinal = x.ordinal

-- items_left: items that were not started any more since their batch was settled: they are failed, and can be retried with the others
update redrive_batches_item as i set state = 'failed', error_code = 'BATCH_SETTLED', error_message = null, failure_type = 'unknown', ended_at = unixepoch() * 1000000
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'ordinal' as ordinal from json_each(?1) v) x
where i.batch = x.batch and i.round = x.round and i.ordinal = x.ordinal and i.state in ('pending', 'processing')

-- items_unstarted: what becomes of items whose turn has not come
update redrive_batches_item set state = x.state, error_code = x.code, error_message = x.message, failure_type = x.type, ended_at = unixepoch() * 1000000
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'state' as state, v.value ->> 'code' as code,
  v.value ->> 'message' as message, v.value ->> 'type' as type from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.round = x.round
  and redrive_batches_item.state = 'pending' and redrive_batches_item.task_id is null

-- items_released: the price of cancelled items whose turn never came went back
update redrive_batches_item set released = 1
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.round = x.round
  and redrive_batches_item.state = 'cancelled' and redrive_batches_item.task_id is null and redrive_batches_item.released = 0

-- items_lost: items of a round that have not ended, and whose tasks will not end them: they are failed
update redrive_batches_item as i set state = 'failed', error_code = x.code, error_message = x.message, failure_type = 'unknown', ended_at = unixepoch() * 1000000,
  unknown = i.job is not null or i.task_id is not null, start_key = case when i.job is not null or i.task_id is not null then coalesce(i.start_key, i.batch || '-' || i.n || ':' || i.round) end
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'code' as code, v.value ->> 'message' as message from json_each(?1) v) x
where i.batch = x.batch and i.round = x.round and i.state in ('pending', 'processing')
  and not exists (select 1 from redrive_task t where t.id = i.task_id and t.state in ('queued', 'delayed', 'running', 'paused'))

-- items_unseen: items of a round (?2) that were failed without their provider's word, and that nobody has asked about since, behind a place (?3), so many (?4); not those whose job is another's
select i.batch, i.n, i.round, i.state, i.job, i.start_key, i.task_id as task from redrive_batches_item i
where i.unknown and i.batch = ?1 and i.n > ?3 and i.round = ?2 and i.state = 'failed' and i.said is null
  and (i.job is null or not exists (select 1 from redrive_batches_item o where o.batch = i.batch and o.job = i.job and o.n <> i.n))
order by i.n limit ?4

-- remote_still_processing: nothing lands where a batch was settled, or is in another round, for want of a version
update redrive_batches_remote as b set version = case when b.state = 'processing' and b.round = x.round then b.version end
from (select v.value ->> 'id' as id, v.value ->> 'round' as round from json_each(?1) v) x where b.id = x.id

-- items_seen: what their provider said of them before their batch was settled
update redrive_batches_item as i set state = coalesce(x.state, i.state), said = x.said, unknown = x.unknown, job = coalesce(i.job, x.job), result = coalesce(x.result, i.result),
  progress = case when x.state = 'completed' then 100.0 else i.progress end,
  error_code = case when x.state is null then coalesce(x.code, i.error_code) end, error_message = case when x.state is not null then null when x.code is not null then x.message else i.error_message end,
  failure_type = case when x.state is null then coalesce(x.type, i.failure_type) end
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round, v.value ->> 'state' as state, v.value ->> 'said' as said, v.value ->> 'unknown' as unknown,
  v.value ->> 'job' as job, v.value ->> 'result' as result, v.value ->> 'code' as code, v.value ->> 'message' as message, v.value ->> 'type' as type from json_each(?1) v) x
where i.batch = x.batch and i.n = x.n and i.round = x.round and i.state = 'failed' and i.unknown

-- items_ran: items of a settled batch (?1) that ended here, whose jobs ran all the same, and that nobody has paid for, so many (?2), of these places (?3, a JSON array) if they are given; not those whose job is another's
select i.n, i.state, i.task_id as task from redrive_batches_item i
where i.batch = ?1 and (?3 is null or i.n in (select value from json_each(?3))) and i.said = 'succeeded' and i.state in ('failed', 'cancelled')
  and not exists (select 1 from redrive_batches_item o where o.batch = i.batch and o.job = i.job and o.n <> i.n and (o.state = 'completed' or o.n < i.n))
order by i.n limit ?2

-- items_ended: how items of a batch (?1) at these places (?2, a JSON array) stand
select i.n, i.state, i.said from redrive_batches_item i where i.batch = ?1 and i.n in (select value from json_each(?2))

-- items_charged: these count as completed from now on, in a round of their own; nothing lands where one of them has been paid for, or started again, for want of a round
update redrive_batches_item as i set round = case when i.said = 'succeeded' and i.state in ('failed', 'cancelled') then x.round end, ordinal = x.ordinal,
  state = 'completed', late = 1, unknown = 0, error_code = null, error_message = null, failure_type = null
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round, v.value ->> 'ordinal' as ordinal from json_each(?1) v) x
where i.batch = x.batch and i.n = x.n

-- remote_round_ended: nothing lands while an item of the round has not ended, or where another number has succeeded, for want of a round
update redrive_batches_remote set round = case
  when not exists (select 1 from redrive_batches_item i where i.batch = redrive_batches_remote.id and i.state in ('pending', 'processing') and i.round = x.round)
    and x.completed = (select count(*) from redrive_batches_item i where i.batch = redrive_batches_remote.id and i.state = 'completed' and i.round = x.round) then redrive_batches_remote.round end
from (select v.value ->> 'id' as id, v.value ->> 'round' as round, v.value ->> 'completed' as completed from json_each(?1) v) x where redrive_batches_remote.id = x.id

-- remote_unended: items of a batch's round that have not ended: how many, how many of them have a task that will end them, and whether its join waits for one
select (select count(*) from redrive_join j where j.id = b.join_id and j.ended_at is null) as join_open, count(i.n) as n, count(t.id) as alive
from redrive_batches_remote b left join redrive_batches_item i on i.batch = b.id and i.round = b.round and i.state in ('pending', 'processing')
  left join redrive_task t on t.id = i.task_id and t.state in ('queued', 'delayed', 'running', 'paused')
where b.id = ?1 group by b.id, b.join_id

-- remote_steps: those that are not settled, behind an id (?1), so many (?2), each with whether the task of its next step is gone, or failed
select b.id, b.name, b.state, b.account, b.frozen, b.step_task, t.state as step_state,
  t.id is null and (b.state = 'queued' or (b.state = 'processing' and (j.id is null or j.ended_at is not null))) as gone
from (select * from redrive_batches_remote where state in ('queued', 'processing') and state in ('draft', 'queued', 'processing') and id > ?1 order by id limit ?2) b
  left join redrive_join j on j.id = b.join_id left join redrive_task t on t.id = b.step_task
order by b.id

-- items_again: failed items in a new round, but for those whose jobs succeeded as their provider said, or were asked to end and may still; of those whose end nobody knows the job is looked at, or asked for by the same key, instead of a second one
update redrive_batches_item set round = x.round, ordinal = y.ordinal, state = 'pending', task_id = null, job = case when unknown then job end, progress = null,
  in_flight = 0, held = 0, stepped = 0, start_key = case when unknown then start_key end, unknown = 0, said = null,
  poll_count = 0, last_poll_at = null, brought_at = null, started_at = null, ended_at = null, result = null,
  error_code = null, error_message = null, failure_type = null, released = 0, late = 0, called = 0
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round from json_each(?1) v) x
join (select i.batch, i.n, row_number() over (partition by i.batch order by i.n) as ordinal from redrive_batches_item i
  where i.state = 'failed' and (coalesce(i.said, '') <> 'succeeded' or exists (select 1 from redrive_batches_item o where o.batch = i.batch and o.job = i.job and o.n <> i.n and (o.state = 'completed' or o.n < i.n)))
    and not (i.unknown and coalesce(i.said, '') = 'stopped') and i.batch in (select v.value ->> 'batch' from json_each(?1) v)) y on y.batch = x.batch
where redrive_batches_item.batch = y.batch and redrive_batches_item.n = y.n

-- items_to_retry: failed items of a batch: how many, those whose jobs succeeded as their provider said, those that were asked to end and may still, and those whose end nobody knows; none of one that is being removed
select count(*) as failed, count(*) filter (where i.said = 'succeeded' and not exists (select 1 from redrive_batches_item o where o.batch = i.batch and o.job = i.job and o.n <> i.n and (o.state = 'completed' or o.n < i.n))) as ran,
  count(*) filter (where i.unknown and i.said = 'stopped') as stopped, count(*) filter (where i.unknown and coalesce(i.said, '') <> 'stopped') as unsure
from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch and b.pruned_at is null where i.batch = ?1 and i.state = 'failed'

-- items_again_counted: nothing lands where another number was started again than is paid for, for want of a round: a provider's word came in between
update redrive_batches_remote set round = case when x.items = (select count(*) from redrive_batches_item i where i.batch = x.batch and i.round = x.round) then redrive_batches_remote.round end
from (select v.value ->> 'batch' as batch, v.value ->> 'round' as round, v.value ->> 'items' as items from json_each(?1) v) x where redrive_batches_remote.id = x.batch

-- remote_by_id: a remote batch
select * from redrive_batches_remote where id = ?1 and state <> 'draft'

-- remote_by_key: the remote batch of a key
select * from redrive_batches_remote where key = ?1

-- remote_listed: the ids of the latest, before an id (?1), of a state (?2), at a provider (?3), paid for by an account (?4) if these are given, so many (?5)
select id from redrive_batches_remote where state <> 'draft' and (?1 is null or id < ?1) and (?2 is null or state = ?2)
  and (?3 is null or provider = ?3) and (?4 is null or account = ?4) order by id desc limit ?5

-- remote_shown: batches (a JSON array of ids). How many items have ended is kept from the settlement on, and counted before
select b.*, case when b.state in ('queued', 'processing') then (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'completed') else b.completed end as n_completed,
  case when b.state in ('queued', 'processing') then (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'failed') else b.failed end as n_failed,
  case when b.state in ('queued', 'processing') then (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'cancelled') else b.cancelled end as n_cancelled,
  (select count(*) from redrive_batches_item i where b.state = 'processing' and i.batch = b.id and i.state = 'processing') as n_processing,
  (select count(*) from redrive_batches_item i where i.batch = b.id and b.pruned_at is null and i.unknown and coalesce(i.said, '') not in ('stopped', 'accepted')) as n_unknown,
  (select count(*) from redrive_batches_item i where b.state in ('completed', 'failed', 'cancelled') and b.pruned_at is null and i.batch = b.id and i.said = 'succeeded' and i.state in ('failed', 'cancelled')) as n_uncharged
from redrive_batches_remote b where b.id in (select value from json_each(?1)) and b.state <> 'draft' order by b.id desc

-- remote_counted: how many items of a settled batch ended how
update redrive_batches_remote set completed = (select count(*) from redrive_batches_item i where i.batch = redrive_batches_remote.id and i.state = 'completed'), failed = (select count(*) from redrive_batches_item i where i.batch = redrive_batches_remote.id and i.state = 'failed'), cancelled = (select count(*) from redrive_batches_item i where i.batch = redrive_batches_remote.id and i.state = 'cancelled')
where id in (select v.value ->> 'id' from json_each(?1) v)

-- remote_books: batches that somebody pays for, behind an id (?1), so many (?2) of not too many items, each with what the books have of it, and what its items say: those of rounds that are settled. Of one that was pruned, or is being pruned, what was counted says so, as far as the items that are gone explain it
with recursive known as (
  select * from (select id, account, round, state, frozen, captured, released, price, items, completed from redrive_batches_remote
   where state <> 'draft' and account is not null and id > ?1 order by id limit ?2)
  union all
  select * from (select id, account, round, 'pruned' as state, 0 as frozen, captured, released, price, 0 as items, completed from redrive_batches_paid
   where id > ?1 order by id limit ?2)
), page as materialized (
  select * from (select k.*, sum(k.items) over (order by k.id) as upto from known k order by k.id limit ?2) x where x.upto - x.items < 200000
), counted as materialized (
  select p.id, count(*) as n, count(*) filter (where i.state = 'completed' and (p.state not in ('queued', 'processing') or i.round < p.round)) as completed
  from page p cross join redrive_batches_item i on i.batch = p.id group by p.id
), rounds as (
  select p.id, p.round, 1 as n from page p
  union all select r.id, r.round, r.n + 1 from rounds r where r.n < r.round
), parts (what, part) as (values ('freeze', ''), ('settle', ''), ('settle', ':unstarted')
), keys as (
  select r.id, k.what, k.what || ':' || r.id || ':' || r.n || k.part as key, r.n from rounds r, parts k
)
select p.id, p.state, p.frozen, p.captured, p.released, p.price,
  coalesce((select c.completed from counted c where c.id = p.id and p.completed - c.completed not between 0 and p.items - c.n), p.completed) as completed,
  coalesce(sum(e.amount) filter (where k.what = 'freeze' and e.account = 'frozen:' || p.account), 0) as books_frozen,
  coalesce(sum(e.amount) filter (where k.what = 'settle' and e.account = 'system:revenue'), 0) as books_captured,
  coalesce(sum(e.amount) filter (where k.what = 'settle' and e.account = 'account:' || p.account), 0) as books_released,
  count(distinct k.n) filter (where k.what = 'freeze' and e.posting is not null) as freezes,
  count(distinct k.n) filter (where k.what = 'settle' and e.posting is not null) as settlements,
  coalesce((select f.amount from redrive_ledger_freeze f where f.account = p.account and f.reference = 'batch:' || p.id), 0) as held
from page p join keys k on k.id = p.id left join redrive_entry e on e.posting = k.key
group by p.id order by p.id

-- movements_piece: the last of so many movements behind a posting
select max(x.posting) as last, count(*) as n from (select posting from redrive_ledger_movement where posting > ?1 order by posting limit ?2) x

-- nobodys_movements: those of a piece that say they are of a batch which there never was, or of a round that it never had
select m.posting, m.reference from redrive_ledger_movement m join redrive_posting p on p.key = m.posting
where m.posting > ?1 and m.posting <= ?2 and m.reference glob 'batch:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
  and (p.note is null or m.posting glob '*:' || substr(m.reference, 7) || ':[0-9]*')
  and not exists (
    select 1 from (select id, round from redrive_batches_remote union all select id, round from redrive_batches_paid) b
    where b.id = substr(m.reference, 7) and (m.posting not glob '*:' || b.id || ':[0-9]*'
      or cast(substr(m.posting, instr(m.posting, b.id) + 37) as integer) between 1 and b.round))
  and not exists (select 1 from redrive_batches b where b.id = substr(m.reference, 7))
order by m.posting limit ?3

-- remote_counts: how many items are in which state, and how many of this round (?2)
select state, count(*) as n, sum(round = ?2) as in_round, sum(round = ?2 and task_id is null and state = 'cancelled' and released = 0) as unreleased,
  sum(unknown and coalesce(said, '') not in ('stopped', 'accepted')) as unknown,
  sum(round = ?2 and state in ('pending', 'processing') and (job is not null or task_id is not null)) as begun
from redrive_batches_item where batch = ?1 group by state

-- remote_failures: failed items by type and code; not those of which nothing was begun for want of money
select failure_type, error_code, count(*) as n from redrive_batches_item where batch = ?1 and state = 'failed' and not (task_id is null and error_code = 'INSUFFICIENT_CREDITS')
group by failure_type, error_code order by n desc, error_code limit 200

-- remote_ended: how items ended since a time (?2, in seconds), by stretches of so many seconds (?3)
select cast((i.ended_at / 1000000.0 - ?2) / ?3 as integer) as stretch, i.state, i.failure_type, count(*) as n
from redrive_batches_item i where i.batch = ?1 and i.ended_at >= cast(?2 * 1000000 as integer) and i.state in ('completed', 'failed')
group by 1, 2, 3

-- item_of_task: the item that a task belongs to
select n, state, null as payload, task_id, job, progress, poll_count, last_poll_at, started_at, ended_at, null as result, error_code, null as error_message, failure_type, late, unknown, said
from redrive_batches_item where task_id = ?1

-- items_of: items by their tasks (a JSON array of ids), with what their batches say; payloads only of those to be started
select i.task_id as task, i.batch, i.n, i.round, i.state, i.job, i.poll_count, i.progress, i.called, case when i.job is null then i.payload end as payload, (julianday('now') - 2440587.5) * 86400.0 as now,
  (unixepoch() * 1000000 - coalesce(i.started_at, i.brought_at)) / 1000000.0 as age, b.cancelled_at is not null as cancelled, b.state as batch_state, i.in_flight, i.start_key, i.ordinal, i.stepped, b.max_in_flight, t.facts ->> 'lanes' as lanes,
  case when i.job is null then (select json_group_array(o.ordinal) from redrive_batches_item o where o.batch = i.batch and o.round = i.round and o.stepped and o.state = 'pending' and o.n <> i.n) end as aside,
  (select min(o.n) from redrive_batches_item o where o.batch = i.batch and o.job = i.job and o.round = i.round and o.n <> i.n
    and (o.state = 'completed' or o.started_at < i.started_at or (o.started_at = i.started_at and o.n < i.n))) as shared_with
from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch and b.round = i.round left join redrive_task t on t.id = i.task_id
where i.task_id in (select value from json_each(?1))

-- item_called: its provider has called; of the second call nothing lands, for want of a number
update redrive_batches_item set called = case when called = 0 then 1 end
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.n = x.n and redrive_batches_item.round = x.round

-- item_still_unknown: nothing lands where an item is not as somebody asked about it any more, for want of a round
update redrive_batches_item as i set round = case when i.round = x.round and i.unknown and i.state in ('failed', 'cancelled') then i.round end
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round from json_each(?1) v) x where i.batch = x.batch and i.n = x.n

-- item_late: what its provider said after it had ended here
update redrive_batches_item set late = redrive_batches_item.late or x.late, result = coalesce(x.result, redrive_batches_item.result), said = x.said,
  job = coalesce(redrive_batches_item.job, x.job), unknown = x.unknown
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round, v.value ->> 'result' as result, v.value ->> 'said' as said,
  v.value ->> 'job' as job, v.value ->> 'late' as late, v.value ->> 'unknown' as unknown from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.n = x.n and redrive_batches_item.round = x.round
  and redrive_batches_item.state in ('failed', 'cancelled')

-- item_at: an item by its place, with what its batch says
select i.batch, i.n, i.round, i.state, i.task_id as task, i.job, i.called, i.unknown, b.provider, b.scope
from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch where i.batch = ?1 and i.n = ?2

-- items_called: those whose provider has called and that wait for their next poll, so many (?1)
select i.task_id as task from redrive_batches_item i join redrive_task t on t.id = i.task_id
where i.called = 1 and i.state = 'processing' and t.state = 'delayed' order by i.batch, i.n limit ?1

-- items_overdue: those that wait and have taken longer than so many seconds (?1), or whose start has failed for so many (?4); of these kinds (?2, a JSON array), or whose last so many (?5) attempts did not end; so many (?3)
select i.task_id as task, i.batch, i.n, i.job, t.kind, t.attempt_count as attempts, t.memo as memo, coalesce(i.started_at, i.brought_at) <= (unixepoch() - ?1) * 1000000 as over
from redrive_batches_item i
  join redrive_batches_remote b on b.id = i.batch and b.round = i.round and b.state = 'processing'
  join redrive_task t on t.id = i.task_id
where i.state in ('pending', 'processing') and i.task_id is not null and coalesce(i.started_at, i.brought_at) <= (unixepoch() - min(?1, ?4)) * 1000000
  and (coalesce(i.started_at, i.brought_at) <= (unixepoch() - ?1) * 1000000 or (i.job is null and t.memo ->> 'since' <= unixepoch() - ?4))
  and t.state in ('queued', 'delayed', 'paused') and (t.kind in (select value from json_each(?2)) or t.attempt_count >= ?5)
order by coalesce(i.started_at, i.brought_at) limit ?3

-- items_still_overdue: nothing lands where one of them has begun anew since it was read, for want of a round
update redrive_batches_item set round = case when coalesce(started_at, brought_at) <= (unixepoch() - x.seconds) * 1000000 then round end
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'seconds' as seconds from json_each(?1) v) x
where redrive_batches_item.batch = x.batch and redrive_batches_item.n = x.n

-- items_unwanted: those of cancelled batches (?2: of this one) that wait to be started, so many (?1); not those that may have been. Batches first: few are cancelled
select i.task_id as task from redrive_batches_remote b
  cross join redrive_batches_item i on i.batch = b.id and i.round = b.round and i.state = 'pending'
  cross join redrive_task t on t.id = i.task_id
where b.state = 'processing' and b.state in ('draft', 'queued', 'processing') and b.cancelled_at is not null and i.job is null and i.start_key is null and t.state in ('queued', 'delayed')
  and (?2 is null or b.id = ?2) and t.attempt_count = 0 and (t.memo is null or t.memo ->> 'unsure' is null) limit ?1

-- flight_locked: who takes places at a provider waits for others who do: here all writers do; and leaves how many there are, for those who are asked what is waited for
insert into redrive_batches_flight (provider, most)
select v.value ->> 'provider', v.value ->> 'most' from json_each(?1) v where true
on conflict (provider) do update set most = excluded.most

-- items_begun: items that are about to be started, as far as there are places at their provider (most) and of their batch, by their order (place)
with x as materialized (
  select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round, v.value ->> 'key' as key, v.value ->> 'place' as place, v.value ->> 'provider' as provider, v.value ->> 'most' as most from json_each(?1) v
), own as materialized (
  select b.id, b.max_in_flight, (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'processing')
    + (select count(*) from redrive_batches_item i indexed by redrive_batches_item_in_flight where i.batch = b.id and i.in_flight and i.state = 'pending') as flying
  from redrive_batches_remote b where b.state = 'processing' and b.state in ('draft', 'queued', 'processing')
    and (b.id in (select x.batch from x) or b.provider in (select x.provider from x where x.most is not null))
), fits as (
  select p.batch, p.n, p.round, p.key, p.most, row_number() over (order by p.place) as place
  from (select x.*, row_number() over (partition by x.batch order by x.place) as in_batch from x) p join own o on o.id = p.batch
  where o.max_in_flight is null or p.in_batch <= o.max_in_flight - o.flying)
update redrive_batches_item as i set in_flight = 1, start_key = coalesce(i.start_key, f.key) from fits f
where i.batch = f.batch and i.n = f.n and i.round = f.round and i.state = 'pending' and (f.most is null or f.place <= f.most - (select sum(o.flying) from own o))

-- items_unbounded: items that are about to be started, where nothing bounds how many
update redrive_batches_item as i set in_flight = 1, start_key = coalesce(i.start_key, x.key)
from (select v.value ->> 'batch' as batch, v.value ->> 'n' as n, v.value ->> 'round' as round, v.value ->> 'key' as key from json_each(?1) v) x
where i.batch = x.batch and i.n = x.n and i.round = x.round and i.state = 'pending'

-- items_with_place: which of these items (a JSON array) have a place
select i.batch, i.n from json_each(?1) v cross join redrive_batches_item i on i.batch = v.value ->> 'batch' and i.n = v.value ->> 'n' and i.round = v.value ->> 'round' where i.in_flight and i.state = 'pending'

-- flights: how many jobs the provider of a batch (?1) has, or may have, of batches that run, how many of them are the batch's, and how many workers let it have
select sum(x.flying) as flying, sum(case when x.own then x.flying end) as own, min(x.most) as most from (
  select b.id = o.id as own, f.most, (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'processing')
    + (select count(*) from redrive_batches_item i indexed by redrive_batches_item_in_flight where i.batch = b.id and i.in_flight and i.state = 'pending') as flying
  from redrive_batches_remote o join redrive_batches_remote b on b.provider = o.provider left join redrive_batches_flight f on f.provider = o.provider
  where o.id = ?1 and b.state = 'processing' and b.state in ('draft', 'queued', 'processing')) x

-- flight_waiting: items that wait for a place and may have one, by the bounds of their provider (?1) and of their batch: the longest first, of each provider in turn, so many (?2)
with own as materialized (
  select b.id, b.round, b.provider, b.max_in_flight, (select count(*) from redrive_batches_item i where i.batch = b.id and i.state = 'processing')
    + (select count(*) from redrive_batches_item i indexed by redrive_batches_item_in_flight where i.batch = b.id and i.in_flight and i.state = 'pending') as flying
  from redrive_batches_remote b where b.state = 'processing' and b.state in ('draft', 'queued', 'processing')
    and exists (select 1 from redrive_batches_item i indexed by redrive_batches_item_held where i.held and i.state = 'pending')
), free as materialized (
  select o.id, o.round, o.provider, o.max_in_flight - o.flying as in_batch, ?1 - sum(o.flying) over (partition by o.provider) as places from own o
), waiting as (
  select f.*, i.task_id, i.brought_at, i.n, row_number() over (partition by i.batch order by i.brought_at, i.n) as nth
  from free f cross join redrive_batches_item i indexed by redrive_batches_item_held on i.batch = f.id and i.round = f.round and i.held and i.state = 'pending'
    cross join redrive_task t on t.id = i.task_id and t.state = 'delayed'
  where coalesce(f.places, 1) > 0 and coalesce(f.in_batch, 1) > 0
), fits as (
  select w.task_id, w.places, row_number() over (partition by w.provider order by w.brought_at, w.n) as place
  from waiting w where (w.in_batch is null or w.nth <= w.in_batch) and (w.places is null or w.nth <= w.places))
select task_id as task from fits where places is null or place <= places order by place limit ?2

-- remote_waiting: what the items of a batch's round wait for, each sort with how many, the first, and what is said of it
select x.what, count(*) as n, min(x.n) as first, min(x.message) as message from (
  select i.n, i.error_message as message, case when i.state = 'processing' then case when i.error_message is null then 'job' else 'unseen' end
    when i.task_id is null then 'turn' when i.held then 'flight' when i.error_message is not null then 'start' else 'due' end as what
  from redrive_batches_item i
  where i.batch = ?1 and i.round = ?2 and i.state in ('pending', 'processing')) x group by x.what

-- items_unknown: items of settled batches, of one (?1) or of all, that ended without their provider's word, behind a batch (?2) and place (?3), so many (?4)
select i.batch, i.n, i.round, i.state, i.job, i.start_key, b.provider, b.account, b.price, b.scope
from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch
where i.unknown and (?1 is null or i.batch = ?1) and (i.batch, i.n) > (?2, ?3) and b.state in ('completed', 'failed', 'cancelled') and b.pruned_at is null
order by i.batch, i.n limit ?4

-- unknown_items: how many items, of a batch (?1) or of all, ended without their provider's word, up to ten thousand, and of how many batches; "marked" are also those that were asked to end, and that somebody accepts
select (select count(*) from (select 1 from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch and b.pruned_at is null where i.unknown and (?1 is null or i.batch = ?1) limit 10000) m) as marked,
  count(*) as n, count(distinct x.batch) as batches, min(x.batch) as first
from (select i.batch from redrive_batches_item i join redrive_batches_remote b on b.id = i.batch and b.pruned_at is null where i.unknown and coalesce(i.said, '') not in ('stopped', 'accepted') and (?1 is null or i.batch = ?1) limit 10000) x

-- items_accepted: of a settled batch, those that ended without their provider's word stay so, and nobody is warned of them any more
update redrive_batches_item as i set said = 'accepted' from (select v.value ->> 'batch' as batch from json_each(?1) v) x
where i.batch = x.batch and i.unknown and coalesce(i.said, '') not in ('stopped', 'accepted') and i.state in ('failed', 'cancelled')

-- remote_last_moves: when something of these batches (a JSON array of ids) moved last
select i.batch as id, max(max(coalesce(i.started_at, 0), coalesce(i.last_poll_at, 0), coalesce(i.ended_at, 0))) as moved_at
from redrive_batches_item i where i.batch in (select value from json_each(?1)) group by i.batch

-- remote_closed: of tasks, each with its batch and round, those whose round has ended: its items are not retried one by one
select x.task, x.batch, x.round as meant, b.state, b.round
from (select v.value ->> 'task' as task, v.value ->> 'batch' as batch, v.value ->> 'round' as round from json_each(?1) v) x
left join redrive_batches_remote b on b.id = x.batch left join redrive_join j on j.id = b.join_id
where b.id is null or b.round <> x.round or b.state <> 'processing' or j.ended_at is not null

-- items_listed: items of a batch behind a place (?2), of states (?3, a JSON array) and a failure type (?4) if these are given, so many (?5)
select n, state, payload, task_id, job, progress, poll_count, last_poll_at, started_at, ended_at, result, error_code, error_message, failure_type, late, unknown, said
from redrive_batches_item where batch = ?1 and n > ?2 and (?3 is null or state in (select value from json_each(?3))) and (?4 is null or failure_type = ?4) order by n limit ?5

-- remote_stuck: those of which nothing has moved for so many hours
select b.id, b.name, b.state, b.account, b.frozen from redrive_batches_remote b
where b.state in ('queued', 'processing') and coalesce(b.dispatched_at, b.created_at) <= (unixepoch() - ?1 * 3600) * 1000000
  and not exists (select 1 from redrive_batches_item i where i.batch = b.id
    and max(coalesce(i.last_poll_at, 0), coalesce(i.started_at, 0), coalesce(i.ended_at, 0)) > (unixepoch() - ?1 * 3600) * 1000000)
order by b.id limit 20

-- remote_processing: how many batches have items that wait or run
select count(*) as batches from redrive_batches_remote where state = 'processing'

-- prune_remote_begun: batches that were settled before this time, and drafts that nobody ended, are being removed from now on, and nobody acts on them any more; so many at once. Who has read one before finds another version
update redrive_batches_remote set pruned_at = unixepoch() * 1000000, version = version + 1 where id in (
  select b.id from redrive_batches_remote b where b.created_at < ?1 and (b.state = 'draft' or (b.state in ('completed', 'failed', 'cancelled') and coalesce(b.settled_at, b.ended_at) < ?1)) and b.pruned_at is null order by b.created_at limit ?2)

-- prune_remote_items: those of batches that are being removed, so many at once
delete from redrive_batches_item where (batch, n) in (
  select i.batch, i.n from redrive_batches_remote b join redrive_batches_item i on i.batch = b.id
  where b.created_at < ?1 and b.pruned_at is not null limit ?2)

-- prune_remote: batches whose items are gone, so many at once
delete from redrive_batches_remote where id in (
  select b.id from redrive_batches_remote b where b.created_at < ?1 and b.pruned_at is not null
    and not exists (select 1 from redrive_batches_item i where i.batch = b.id) order by b.created_at limit ?2)

-- remote_unheld: nothing lands while a batch has not ended, for want of a version
update redrive_batches_remote set version = case when state not in ('queued', 'processing') then version end
where id in (select v.value ->> 'id' from json_each(?1) v)

-- remote_of_scope: those of a scope (?1) that are not settled, so many (?2)
select id from redrive_batches_remote where scope = ?1 and state in ('queued', 'processing') order by id limit ?2

-- erase_items: what items hold that belong to a scope or to tasks, so many at once. A batch that is not settled is left: it needs what it holds
update redrive_batches_item set payload = null, result = null, error_message = null where (batch, n) in (
  select i.batch, i.n from redrive_batches_item i where (i.payload is not null or i.result is not null or i.error_message is not null)
    and (i.batch in (select b.id from redrive_batches_remote b where b.scope = ?1 ->> 'scope')
      or i.task_id in (select value from json_each(?1, '$.tasks')))
    and not exists (select 1 from redrive_batches_remote b where b.id = i.batch and b.state in ('queued', 'processing')) limit (?1 ->> 'limit'))

-- erase_remote: the batches, once their items are emptied
update redrive_batches_remote set name = null, key = null, meta = null, reason = null, webhook_url = null, digest = null, scope = ?1 ->> 'tombstone'
where scope = ?1 ->> 'scope' and state not in ('queued', 'processing') and not exists (select 1 from redrive_batches_item i where i.batch = redrive_batches_remote.id
  and (i.payload is not null or i.result is not null or i.error_message is not null))
