-- A worker signs deliveries whose leases it holds, and sees no other secret.
comment on table redrive.webhooks_secret is 'For workers: select (id, owner, created_at, expires_at), insert, delete';
create function redrive.webhook_keys(p_task uuid, p_token uuid) returns table (owner text, secret text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.owner, s.secret from redrive.task t
  join redrive.webhooks_endpoint e on e.id = t.payload ->> 'endpoint_id'
  join redrive.webhooks_secret s on s.owner in ('endpoint:' || e.id, 'account:' || e.account)
  where t.id = p_task and t.lease_token = p_token and t.state = 'running' and t.kind = 'WEBHOOK_DELIVERY'
    and t.lease_expires_at > clock_timestamp() and (s.expires_at is null or s.expires_at > clock_timestamp())
  order by s.created_at desc, s.id desc
$$;
revoke all on function redrive.webhook_keys(uuid, uuid) from public;
