-- counts: events of an entity type by status, of those that are not done; the first usual question
select e.status, count(*)::int8 as n from redrive.search_outbox_events e where e.processed_at is null and e.entity_type = $1 group by 1 order by 1

-- done: how many are done
select count(*)::int8 as n from redrive.search_outbox_events e where e.status = 'done' and e.entity_type = $1

-- stuck: processing, and the lease is over or it takes longer than the maximum (seconds); the second one
select count(*)::int8 as n from redrive.search_outbox_events e where e.status = 'processing' and e.entity_type = $1
  and (e.lease_until < clock_timestamp() or e.processing_started_at < clock_timestamp() - $2::float8 * interval '1 second')

-- waiting: pending events, the oldest first, with attempts, next retry and reason; the third one
select e.entity_id, e.op, e.attempts, e.next_retry_at, e.error_reason, e.created_at,
  greatest(extract(epoch from e.next_retry_at - clock_timestamp()), 0)::float8 as retry_in,
  extract(epoch from clock_timestamp() - e.created_at)::float8 as age
from redrive.search_outbox_events e where e.status = 'pending' and e.entity_type = $1 order by e.created_at limit $2

-- events: all columns, the first failures first
select e.* from redrive.search_outbox_events e where e.status = $2 and e.entity_type = $1 order by e.created_at limit $3
