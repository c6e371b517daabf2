-- endpoint_added: new endpoints
insert into redrive.webhooks_endpoint (id, account, url, events, description, state)
select x.id, x.account, x.url, x.events, x.description, 'enabled'
from jsonb_to_recordset($1) x(id text, account text, url text, events text, description text)

-- endpoint_used: endpoints that a call named by URL; one that was used before is the same
insert into redrive.webhooks_endpoint (id, account, url, events, state, direct)
select distinct x.id, x.account, x.url, '[]', 'enabled', true
from jsonb_to_recordset($1) x(id text, account text, url text)
on conflict (id) do update set used_at = clock_timestamp()
where webhooks_endpoint.used_at < clock_timestamp() - interval '1 hour'

-- endpoint_changed: what is said of endpoints
update redrive.webhooks_endpoint e set url = x.url, events = x.events, description = x.description
from jsonb_to_recordset($1) x(id text, url text, events text, description text) where e.id = x.id

-- endpoint_enabled: endpoints that get events again
update redrive.webhooks_endpoint e set state = 'enabled', failing_since = null, disabled_at = null, disabled_by = null, disabled_reason = null
from jsonb_to_recordset($1) x(id text) where e.id = x.id

-- endpoint_disabled: endpoints that get nothing, and who said so
update redrive.webhooks_endpoint e
set state = 'disabled', disabled_at = clock_timestamp(), disabled_by = x."by", disabled_reason = x.reason
from jsonb_to_recordset($1) x(id text, "by" text, reason text) where e.id = x.id

-- endpoint_removed: endpoints that are no more
delete from redrive.webhooks_endpoint e using jsonb_to_recordset($1) x(id text) where e.id = x.id

-- endpoint_settled: since when endpoints have only failed, and those that said that they are gone; locked in one order
with told as (
  select x.endpoint, bool_or(x.ok) as ok, bool_or(x.gone) as gone
  from jsonb_to_recordset($1) x(endpoint text, ok boolean, gone boolean) group by x.endpoint
), held as (
  select e.id from redrive.webhooks_endpoint e join told t on t.endpoint = e.id
  where t.ok is distinct from (e.failing_since is null) or (t.gone and e.state = 'enabled')
  order by e.id for update of e
)
update redrive.webhooks_endpoint e set
  failing_since = case when t.ok then null else coalesce(e.failing_since, clock_timestamp()) end,
  state = case when t.gone then 'disabled' else e.state end,
  disabled_at = case when t.gone and e.state = 'enabled' then clock_timestamp() else e.disabled_at end,
  disabled_by = case when t.gone and e.state = 'enabled' then 'redrive' else e.disabled_by end,
  disabled_reason = case when t.gone and e.state = 'enabled' then 'it answered 410 Gone' else e.disabled_reason end
from told t where t.endpoint = e.id and e.id in (select h.id from held h)

-- secret_added: new secrets
insert into redrive.webhooks_secret (id, owner, secret)
select x.id, x.owner, x.secret from jsonb_to_recordset($1) x(id text, owner text, secret text)
on conflict (id) do nothing

-- secrets_expire: the secrets of an owner so far, which are valid for so many seconds more
update redrive.webhooks_secret s set expires_at = clock_timestamp() + x.seconds * interval '1 second'
from jsonb_to_recordset($1) x(owner text, seconds double precision)
where s.owner = x.owner and (s.expires_at is null or s.expires_at > clock_timestamp() + x.seconds * interval '1 second')

-- secrets_removed: all secrets of an owner
delete from redrive.webhooks_secret s using jsonb_to_recordset($1) x(owner text) where s.owner = x.owner

-- deliveries_made: new deliveries; of one that is there already nothing changes
insert into redrive.webhooks_delivery (task_id, endpoint_id, account, event_id, event_type, round, state)
select x.task, x.endpoint, x.account, x.event, x.type, x.round, 'pending'
from jsonb_to_recordset($1) x(task uuid, endpoint text, account text, event text, type text, round integer)
on conflict do nothing

-- delivery_moved: what became of deliveries
update redrive.webhooks_delivery d set state = x.state, moved_at = clock_timestamp()
from jsonb_to_recordset($1) x(task uuid, state text) where d.task_id = x.task and d.state <> x.state

-- attempted: requests that were sent, and what was answered
insert into redrive.webhooks_attempt (id, task_id, attempt, replay, outcome, status, ms, request, response, error)
select x.id, x.task, x.attempt, x.replay, x.outcome, x.status, x.ms, x.request, x.response, x.error
from jsonb_to_recordset($1) x(id uuid, task uuid, attempt integer, replay integer, outcome text, status integer, ms double precision,
  request text, response text, error text)

-- endpoint: one endpoint
select e.* from redrive.webhooks_endpoint e where e.id = $1::text

-- endpoints: a page of endpoints, by account
select e.* from redrive.webhooks_endpoint e
where ($1::text is null or e.account = $1) and ($2::text is null or e.state = $2)
  and ($3::text is null or (e.account, e.id) > ($3, $4::text)) and e.direct = $5::boolean
order by e.account, e.id limit $6::bigint

-- targets: enabled endpoints of an account, which events may be for
select e.id, e.account, e.events from redrive.webhooks_endpoint e
where e.account = $1::text and e.state = 'enabled' and not e.direct order by e.id limit 1001

-- delivery_keys: the secrets by which a delivery ($1) is signed, for who holds its lease ($2)
select owner, secret from redrive.webhook_keys($1::text::uuid, $2::text::uuid)

-- signers: whose secrets an endpoint or its account have that are valid, the newest first
select s.owner from redrive.webhooks_secret s
where s.owner in ('endpoint:' || $1::text, 'account:' || $2::text) and (s.expires_at is null or s.expires_at > clock_timestamp())
order by s.created_at desc, s.id desc

-- secret_forms: whether there are secrets that are encrypted, and such that are not
select sealed, clear from redrive.webhook_secret_forms()

-- secrets_page: secrets as they are stored, behind an id ($1), so many ($2)
select s.id, s.secret from redrive.webhooks_secret s where s.id > $1 order by s.id limit $2

-- secrets_stored: the same secrets, stored otherwise; one that was replaced meanwhile is left
update redrive.webhooks_secret s set secret = x.secret from jsonb_to_recordset($1) x(id text, was text, secret text)
where s.id = x.id and s.secret = x.was

-- secrets: when the secrets of an owner were made, and until when they are valid
select s.id, s.created_at, s.expires_at from redrive.webhooks_secret s
where s.owner = $1::text and (s.expires_at is null or s.expires_at > clock_timestamp()) order by s.created_at desc, s.id desc

-- delivery: one delivery
select d.* from redrive.webhooks_delivery d where d.task_id = $1::text::uuid

-- deliveries: a page of deliveries, the newest first; by which they are looked for has a statement of its own, so that its index is used
select d.* from redrive.webhooks_delivery d
where ($1::text is null or d.endpoint_id = $1) and ($2::text is null or d.account = $2) and ($3::text is null or d.state = $3)
  and ($4::text is null or d.event_type = $4) and ($5::text is null or d.event_id = $5) and ($6::text is null or d.task_id < $6::uuid)
order by d.task_id desc limit $7::bigint

-- deliveries_by_endpoint: the same, of one endpoint
select d.* from redrive.webhooks_delivery d
where d.endpoint_id = $1::text and ($2::text is null or d.account = $2) and ($3::text is null or d.state = $3)
  and ($4::text is null or d.event_type = $4) and ($5::text is null or d.event_id = $5) and ($6::text is null or d.task_id < $6::uuid)
order by d.task_id desc limit $7::bigint

-- deliveries_by_account: the same, of one account
select d.* from redrive.webhooks_delivery d
where ($1::text is null or d.endpoint_id = $1) and d.account = $2::text and ($3::text is null or d.state = $3)
  and ($4::text is null or d.event_type = $4) and ($5::text is null or d.event_id = $5) and ($6::text is null or d.task_id < $6::uuid)
order by d.task_id desc limit $7::bigint

-- deliveries_by_state: the same, of one state
select d.* from redrive.webhooks_delivery d
where ($1::text is null or d.endpoint_id = $1) and ($2::text is null or d.account = $2) and d.state = $3::text
  and ($4::text is null or d.event_type = $4) and ($5::text is null or d.event_id = $5) and ($6::text is null or d.task_id < $6::uuid)
order by d.task_id desc limit $7::bigint

-- deliveries_by_event: the same, of one event
select d.* from redrive.webhooks_delivery d
where ($1::text is null or d.endpoint_id = $1) and ($2::text is null or d.account = $2) and ($3::text is null or d.state = $3)
  and ($4::text is null or d.event_type = $4) and d.event_id = $5::text and ($6::text is null or d.task_id < $6::uuid)
order by d.task_id desc limit $7::bigint

-- rounds: how often an event was sent to an endpoint
select coalesce(max(d.round), -1) + 1 as n from redrive.webhooks_delivery d where d.event_id = $1::text and d.endpoint_id = $2::text

-- attempts: requests of a delivery, the first one first
select a.* from redrive.webhooks_attempt a where a.task_id = $1::text::uuid order by a.id limit 200

-- failing: enabled endpoints that have only failed for so many seconds
select e.id, e.account, e.url, e.failing_since from redrive.webhooks_endpoint e
where e.failing_since <= clock_timestamp() - $1::double precision * interval '1 second' and e.state = 'enabled' order by e.failing_since limit 100

-- given_up: endpoints that redrive has disabled itself
select e.id, e.account, e.url, e.disabled_at, e.disabled_reason from redrive.webhooks_endpoint e
where e.state = 'disabled' and e.disabled_by = 'redrive' order by e.disabled_at desc limit 100

-- endpoint_numbers: how many endpoints there are by state, and how many of them fail
select e.state, count(*) as n, count(*) filter (where e.failing_since is not null) as failing
from redrive.webhooks_endpoint e group by e.state order by e.state

-- unsigned: enabled endpoints that have no secret, and nor has their account
select e.id, e.account from redrive.webhooks_endpoint e
where e.state = 'enabled'
  and not exists (select from redrive.webhooks_secret s where s.owner = 'endpoint:' || e.id and (s.expires_at is null or s.expires_at > statement_timestamp()))
  and not exists (select from redrive.webhooks_secret s where s.owner = 'account:' || e.account and (s.expires_at is null or s.expires_at > statement_timestamp()))
order by e.id limit 20

-- prune_attempts: requests from before this time, so many at once
delete from redrive.webhooks_attempt where id = any (array(
  select id from redrive.webhooks_attempt where at < $1 order by at limit $2))

-- prune_deliveries: deliveries that ended before this time, so many at once
delete from redrive.webhooks_delivery where task_id = any (array(
  select task_id from redrive.webhooks_delivery
  where moved_at < $1 and state in ('completed', 'cancelled') order by moved_at limit $2))

-- prune_direct: endpoints of single calls that were last used before this time, so many at once
delete from redrive.webhooks_endpoint where id = any (array(
  select e.id from redrive.webhooks_endpoint e where e.direct and e.used_at < $1
    and not exists (select from redrive.webhooks_delivery d where d.endpoint_id = e.id) order by e.used_at limit $2))

-- prune_secrets: secrets that ran out before this time, or whose endpoint is gone, so many at once
select redrive.prune_webhook_secrets($1, $2)

-- personal: how many rows are about an account, or about tasks
select (select count(*) from redrive.webhooks_endpoint e where e.account = $1::jsonb ->> 'scope')
  + (select count(*) from redrive.webhooks_secret s where s.owner = 'account:' || ($1::jsonb ->> 'scope'))
  + (select count(*) from redrive.webhooks_delivery d where d.account = $1::jsonb ->> 'scope' or (d.account not like 'erased:%'
      and d.task_id = any (array(select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t))))
  + (select count(*) from redrive.webhooks_attempt a where (a.request is not null or a.response is not null or a.error is not null)
      and a.task_id in (select d.task_id from redrive.webhooks_delivery d where d.account = $1::jsonb ->> 'scope'
        union select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t)) as n

-- belonging: deliveries of events that were enqueued as tasks of their own; by their keys, since what is completed has no payload
with meant as (select t.value::uuid as id from jsonb_array_elements_text($1::jsonb -> 'tasks') t)
select d.task_id as id from redrive.webhooks_delivery d where d.account not like 'erased:%' and d.event_id in (
  select substr(e.idempotency_key, 23) from (
    select h.kind, h.idempotency_key from redrive.history h where h.id in (select id from meant)
    union all select t.kind, t.idempotency_key from redrive.task t where t.id in (select id from meant)) e
  where e.kind = 'WEBHOOK_EVENT' and e.idempotency_key like 'redrive:webhook-event:%')

-- erase: what was sent and answered, so many at once; before the deliveries, by which it is found
update redrive.webhooks_attempt set request = null, response = null, error = null where id = any (array(
  select a.id from redrive.webhooks_attempt a where (a.request is not null or a.response is not null or a.error is not null)
    and a.task_id in (select d.task_id from redrive.webhooks_delivery d where d.account = $1::jsonb ->> 'scope'
      union select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t)
  limit ($1::jsonb ->> 'limit')::bigint))

-- erase_deliveries: deliveries, emptied, so many at once; those of requests that are not come later
update redrive.webhooks_delivery set account = coalesce($1::jsonb ->> 'tombstone', 'erased:'), endpoint_id = 'erased', event_type = 'erased',
  event_id = task_id::text
where task_id = any (array(
  select d.task_id from redrive.webhooks_delivery d where d.account not like 'erased:%' and (d.account = $1::jsonb ->> 'scope'
    or d.task_id = any (array(select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t)))
    and not exists (select from redrive.webhooks_attempt a where a.task_id = d.task_id and a.request is not null)
  limit ($1::jsonb ->> 'limit')::bigint))

-- erase_secrets: the secrets of an account and of its endpoints
select redrive.erase_webhook_secrets($1::jsonb ->> 'scope')

-- erase_endpoints: the endpoints of an account
delete from redrive.webhooks_endpoint where id = any (array(
  select id from redrive.webhooks_endpoint where account = $1::jsonb ->> 'scope' limit ($1::jsonb ->> 'limit')::bigint))
