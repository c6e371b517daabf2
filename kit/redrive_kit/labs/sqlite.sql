-- counts: events of an entity type by status, of those that are not done; the first usual question
select e.status, count(*) as n from search_outbox_events e where e.processed_at is null and e.entity_type = ?1 group by 1 order by 1

-- done: how many are done
select count(*) as n from search_outbox_events e where e.status = 'done' and e.entity_type = ?1

-- stuck: processing, and the lease is over or it takes longer than the maximum (seconds); the second one
select count(*) as n from search_outbox_events e where e.status = 'processing' and e.entity_type = ?1
  and (e.lease_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    or e.processing_started_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-' || ?2 || ' seconds'))

-- waiting: pending events, the oldest first, with attempts, next retry and reason; the third one
select e.entity_id, e.op, e.attempts, e.next_retry_at, e.error_reason, e.created_at,
  max((julianday(e.next_retry_at) - julianday('now')) * 86400, 0) as retry_in,
  (julianday('now') - julianday(e.created_at)) * 86400 as age
from search_outbox_events e where e.status = 'pending' and e.entity_type = ?1 order by e.created_at limit ?2

-- events: all columns, the first failures first
select e.* from search_outbox_events e where e.status = ?2 and e.entity_type = ?1 order by e.created_at limit ?3
