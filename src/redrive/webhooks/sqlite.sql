-- endpoint_added: new endpoints
insert into redrive_webhooks_endpoint (id, account, url, events, description, state)
select v.value ->> 'id', v.value ->> 'account', v.value ->> 'url', v.value ->> 'events', v.value ->> 'description', 'enabled' from json_each(?) v

-- endpoint_used: endpoints that a call named by URL; one that was used before is the same
insert into redrive_webhooks_endpoint (id, account, url, events, state, direct)
select distinct v.value ->> 'id', v.value ->> 'account', v.value ->> 'url', '[]', 'enabled', 1 from json_each(?) v where true
on conflict (id) do update set used_at = unixepoch() * 1000000 where used_at < (unixepoch() - 3600) * 1000000

-- endpoint_changed: what is said of endpoints
update redrive_webhooks_endpoint set url = v.url, events = v.events, description = v.description
from (select j.value ->> 'id' as id, j.value ->> 'url' as url, j.value ->> 'events' as events, j.value ->> 'description' as description
  from json_each(?) j) v
where redrive_webhooks_endpoint.id = v.id

-- endpoint_enabled: endpoints that get events again
update redrive_webhooks_endpoint set state = 'enabled', failing_since = null, disabled_at = null, disabled_by = null, disabled_reason = null
where id in (select j.value ->> 'id' from json_each(?) j)

-- endpoint_disabled: endpoints that get nothing, and who said so
update redrive_webhooks_endpoint set state = 'disabled', disabled_at = unixepoch() * 1000000, disabled_by = v.by_whom, disabled_reason = v.reason
from (select j.value ->> 'id' as id, j.value ->> 'by' as by_whom, j.value ->> 'reason' as reason from json_each(?) j) v
where redrive_webhooks_endpoint.id = v.id

-- endpoint_removed: endpoints that are no more
delete from redrive_webhooks_endpoint where id in (select j.value ->> 'id' from json_each(?) j)

-- endpoint_settled: since when endpoints have only failed, and those that said that they are gone
update redrive_webhooks_endpoint set
  failing_since = case when t.ok then null else coalesce(failing_since, unixepoch() * 1000000) end,
  disabled_at = case when t.gone and state = 'enabled' then unixepoch() * 1000000 else disabled_at end,
  disabled_by = case when t.gone and state = 'enabled' then 'redrive' else disabled_by end,
  disabled_reason = case when t.gone and state = 'enabled' then 'it answered 410 Gone' else disabled_reason end,
  state = case when t.gone then 'disabled' else state end
from (select j.value ->> 'endpoint' as endpoint, max(j.value ->> 'ok') as ok, max(j.value ->> 'gone') as gone
  from json_each(?) j group by 1) t
where redrive_webhooks_endpoint.id = t.endpoint and (t.ok <> (failing_since is null) or (t.gone and state = 'enabled'))

-- secret_added: new secrets
insert into redrive_webhooks_secret (id, owner, secret)
select v.value ->> 'id', v.value ->> 'owner', v.value ->> 'secret' from json_each(?) v where true
on conflict (id) do nothing

-- secrets_expire: the secrets of an owner so far, which are valid for so many seconds more
update redrive_webhooks_secret set expires_at = v.ends
from (select j.value ->> 'owner' as owner, cast(unixepoch() + (j.value ->> 'seconds') as integer) * 1000000 as ends from json_each(?) j) v
where redrive_webhooks_secret.owner = v.owner and (expires_at is null or expires_at > v.ends)

-- secrets_removed: all secrets of an owner
delete from redrive_webhooks_secret where owner in (select j.value ->> 'owner' from json_each(?) j)

-- deliveries_made: new deliveries; of one that is there already nothing changes
insert into redrive_webhooks_delivery (task_id, endpoint_id, account, event_id, event_type, round, state)
select v.value ->> 'task', v.value ->> 'endpoint', v.value ->> 'account', v.value ->> 'event', v.value ->> 'type', v.value ->> 'round', 'pending'
from json_each(?) v where true
on conflict do nothing

-- delivery_moved: what became of deliveries
update redrive_webhooks_delivery set state = v.state, moved_at = unixepoch() * 1000000
from (select j.value ->> 'task' as task, j.value ->> 'state' as state from json_each(?) j) v
where redrive_webhooks_delivery.task_id = v.task and redrive_webhooks_delivery.state <> v.state

-- attempted: requests that were sent, and what was answered
insert into redrive_webhooks_attempt (id, task_id, attempt, replay, outcome, status, ms, request, response, error)
select v.value ->> 'id', v.value ->> 'task', v.value ->> 'attempt', v.value ->> 'replay', v.value ->> 'outcome', v.value ->> 'status', v.value ->> 'ms',
  v.value ->> 'request', v.value ->> 'response', v.value ->> 'error'
from json_each(?) v

-- endpoint: one endpoint
select e.* from redrive_webhooks_endpoint e where e.id = ?1

-- endpoints: a page of endpoints, by account
select e.* from redrive_webhooks_endpoint e
where (?1 is null or e.account = ?1) and (?2 is null or e.state = ?2)
  and (?3 is null or (e.account, e.id) > (?3, ?4)) and e.direct = ?5
order by e.account, e.id limit ?6

-- targets: enabled endpoints of an account, which events may be for
select e.id, e.account, e.events from redrive_webhooks_endpoint e
where e.account = ?1 and e.state = 'enabled' and e.direct = 0 order by e.id limit 1001

-- delivery_keys: the secrets by which a delivery (?1) is signed, for who holds its lease (?2)
select s.owner, s.secret from redrive_task t join redrive_webhooks_endpoint e on e.id = t.payload ->> 'endpoint_id'
join redrive_webhooks_secret s on s.owner in ('endpoint:' || e.id, 'account:' || e.account)
where t.id = ?1 and t.lease_token = ?2 and t.state = 'running' and (s.expires_at is null or s.expires_at > unixepoch() * 1000000)
order by s.created_at desc, s.id desc

-- signers: whose secrets an endpoint or its account have that are valid, the newest first
select s.owner from redrive_webhooks_secret s
where s.owner in ('endpoint:' || ?1, 'account:' || ?2) and (s.expires_at is null or s.expires_at > unixepoch() * 1000000)
order by s.created_at desc, s.id desc

-- secret_forms: whether there are secrets that are encrypted, and such that are not
select exists (select 1 from redrive_webhooks_secret s where s.secret glob 'fernet:*') as sealed,
  exists (select 1 from redrive_webhooks_secret s where s.secret not glob 'fernet:*') as clear

-- secrets_page: secrets as they are stored, behind an id (?1), so many (?2)
select s.id, s.secret from redrive_webhooks_secret s where s.id > ?1 order by s.id limit ?2

-- secrets_stored: the same secrets, stored otherwise; one that was replaced meanwhile is left
update redrive_webhooks_secret set secret = v.value ->> 'secret' from json_each(?1) v
where redrive_webhooks_secret.id = v.value ->> 'id' and redrive_webhooks_secret.secret = v.value ->> 'was'

-- secrets: when the secrets of an owner were made, and until when they are valid
select s.id, s.created_at, s.expires_at from redrive_webhooks_secret s
where s.owner = ?1 and (s.expires_at is null or s.expires_at > unixepoch() * 1000000) order by s.created_at desc, s.id desc

-- delivery: one delivery
select d.* from redrive_webhooks_delivery d where d.task_id = ?1

-- deliveries: a page of deliveries, the newest first; by which they are looked for has a statement of its own, so that its index is used
select d.* from redrive_webhooks_delivery d
where (?1 is null or d.endpoint_id = ?1) and (?2 is null or d.account = ?2) and (?3 is null or d.state = ?3)
  and (?4 is null or d.event_type = ?4) and (?5 is null or d.event_id = ?5) and (?6 is null or d.task_id < ?6)
order by d.task_id desc limit ?7

-- deliveries_by_endpoint: the same, of one endpoint
select d.* from redrive_webhooks_delivery d
where d.endpoint_id = ?1 and (?2 is null or d.account = ?2) and (?3 is null or d.state = ?3)
  and (?4 is null or d.event_type = ?4) and (?5 is null or d.event_id = ?5) and (?6 is null or d.task_id < ?6)
order by d.task_id desc limit ?7

-- deliveries_by_account: the same, of one account
select d.* from redrive_webhooks_delivery d
where (?1 is null or d.endpoint_id = ?1) and d.account = ?2 and (?3 is null or d.state = ?3)
  and (?4 is null or d.event_type = ?4) and (?5 is null or d.event_id = ?5) and (?6 is null or d.task_id < ?6)
order by d.task_id desc limit ?7

-- deliveries_by_state: the same, of one state
select d.* from redrive_webhooks_delivery d
where (?1 is null or d.endpoint_id = ?1) and (?2 is null or d.account = ?2) and d.state = ?3
  and (?4 is null or d.event_type = ?4) and (?5 is null or d.event_id = ?5) and (?6 is null or d.task_id < ?6)
order by d.task_id desc limit ?7

-- deliveries_by_event: the same, of one event
select d.* from redrive_webhooks_delivery d
where (?1 is null or d.endpoint_id = ?1) and (?2 is null or d.account = ?2) and (?3 is null or d.state = ?3)
  and (?4 is null or d.event_type = ?4) and d.event_id = ?5 and (?6 is null or d.task_id < ?6)
order by d.task_id desc limit ?7

-- rounds: how often an event was sent to an endpoint
select coalesce(max(d.round), -1) + 1 as n from redrive_webhooks_delivery d where d.event_id = ?1 and d.endpoint_id = ?2

-- attempts: requests of a delivery, the first one first
select a.* from redrive_webhooks_attempt a where a.task_id = ?1 order by a.id limit 200

-- failing: enabled endpoints that have only failed for so many seconds
select e.id, e.account, e.url, e.failing_since from redrive_webhooks_endpoint e
where e.failing_since <= (unixepoch() - ?1) * 1000000 and e.state = 'enabled' order by e.failing_since limit 100

-- given_up: endpoints that redrive has disabled itself
select e.id, e.account, e.url, e.disabled_at, e.disabled_reason from redrive_webhooks_endpoint e
where e.state = 'disabled' and e.disabled_by = 'redrive' order by e.disabled_at desc limit 100

-- endpoint_numbers: how many endpoints there are by state, and how many of them fail
select e.state, count(*) as n, sum(e.failing_since is not null) as failing
from redrive_webhooks_endpoint e group by e.state order by e.state

-- unsigned: enabled endpoints that have no secret, and nor has their account
select e.id, e.account from redrive_webhooks_endpoint e
where e.state = 'enabled' and not exists (select 1 from redrive_webhooks_secret s
  where s.owner in ('endpoint:' || e.id, 'account:' || e.account) and (s.expires_at is null or s.expires_at > unixepoch() * 1000000))
order by e.id limit 20

-- prune_attempts: requests from before this time, so many at once
delete from redrive_webhooks_attempt where id in (
  select id from redrive_webhooks_attempt where at < ?1 order by at limit ?2)

-- prune_deliveries: deliveries that ended before this time, so many at once
delete from redrive_webhooks_delivery where task_id in (
  select task_id from redrive_webhooks_delivery
  where moved_at < ?1 and state in ('completed', 'cancelled') order by moved_at limit ?2)

-- prune_direct: endpoints of single calls that were last used before this time, so many at once
delete from redrive_webhooks_endpoint where id in (
  select e.id from redrive_webhooks_endpoint e where e.direct = 1 and e.used_at < ?1
    and not exists (select 1 from redrive_webhooks_delivery d where d.endpoint_id = e.id) order by e.used_at limit ?2)

-- prune_secrets: secrets that ran out before this time, or whose endpoint is gone, so many at once
delete from redrive_webhooks_secret where id in (
  select s.id from redrive_webhooks_secret s where s.expires_at < ?1 or (s.created_at < ?1 and s.owner like 'endpoint:%'
    and not exists (select 1 from redrive_webhooks_endpoint e where e.id = substr(s.owner, 10))) order by s.id limit ?2)

-- personal: how many rows are about an account, or about tasks
select (select count(*) from redrive_webhooks_endpoint e where e.account = ?1 ->> 'scope')
  + (select count(*) from redrive_webhooks_secret s where s.owner = 'account:' || (?1 ->> 'scope'))
  + (select count(*) from redrive_webhooks_delivery d where d.account = ?1 ->> 'scope'
      or (d.account not like 'erased:%' and d.task_id in (select value from json_each(?1, '$.tasks'))))
  + (select count(*) from redrive_webhooks_attempt a where (a.request is not null or a.response is not null or a.error is not null)
      and (a.task_id in (select d.task_id from redrive_webhooks_delivery d where d.account = ?1 ->> 'scope')
        or a.task_id in (select value from json_each(?1, '$.tasks')))) as n

-- belonging: deliveries of events that were enqueued as tasks of their own; by their keys, since what is completed has no payload
select d.task_id as id from redrive_webhooks_delivery d where d.account not like 'erased:%' and d.event_id in (
  select substr(e.idempotency_key, 23) from (
    select h.kind, h.idempotency_key from redrive_history h where h.id in (select value from json_each(?1, '$.tasks'))
    union all select t.kind, t.idempotency_key from redrive_task t where t.id in (select value from json_each(?1, '$.tasks'))) e
  where e.kind = 'WEBHOOK_EVENT' and e.idempotency_key like 'redrive:webhook-event:%')

-- erase: what was sent and answered, so many at once; before the deliveries, by which it is found
update redrive_webhooks_attempt set request = null, response = null, error = null where id in (
  select a.id from redrive_webhooks_attempt a where (a.request is not null or a.response is not null or a.error is not null)
    and (a.task_id in (select d.task_id from redrive_webhooks_delivery d where d.account = ?1 ->> 'scope')
      or a.task_id in (select value from json_each(?1, '$.tasks')))
  limit (?1 ->> 'limit'))

-- erase_deliveries: deliveries, emptied, so many at once; those of requests that are not come later
update redrive_webhooks_delivery set account = coalesce(?1 ->> 'tombstone', 'erased:'), endpoint_id = 'erased', event_type = 'erased',
  event_id = task_id
where task_id in (
  select d.task_id from redrive_webhooks_delivery d where d.account not like 'erased:%'
    and (d.account = ?1 ->> 'scope' or d.task_id in (select value from json_each(?1, '$.tasks')))
    and not exists (select 1 from redrive_webhooks_attempt a where a.task_id = d.task_id and a.request is not null)
  limit (?1 ->> 'limit'))

-- erase_secrets: the secrets of an account and of its endpoints
delete from redrive_webhooks_secret where owner = 'account:' || (?1 ->> 'scope') or owner in (
  select 'endpoint:' || e.id from redrive_webhooks_endpoint e where e.account = ?1 ->> 'scope')

-- erase_endpoints: the endpoints of an account
delete from redrive_webhooks_endpoint where id in (
  select id from redrive_webhooks_endpoint where account = ?1 ->> 'scope' limit (?1 ->> 'limit'))
