create or replace function redrive.webhook_keys(p_task uuid, p_token uuid) returns table (owner text, secret text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select s.owner, s.secret from redrive.task t
  join redrive.webhooks_endpoint e on e.id = t.payload ->> 'endpoint_id'
  join redrive.webhooks_secret s on s.owner in ('endpoint:' || e.id, 'account:' || e.account)
  where t.id = p_task and t.lease_token = p_token and t.state = 'running' and t.kind = 'WEBHOOK_DELIVERY'
    and t.lease_expires_at > clock_timestamp() and (s.expires_at is null or s.expires_at > clock_timestamp())
  order by s.created_at desc, s.id desc
$$;

-- It adds only the one of a URL that is named for a single event; endpoints and accounts get theirs by the API's role.
create or replace function redrive.guard_webhook_secret() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() and not exists (
    select 1 from redrive.webhooks_endpoint e
    where e.direct and new.owner = 'endpoint:' || e.id and new.id = 'sec_' || e.id and new.expires_at is null)
  then
    raise exception 'role % may not give % a secret', current_user, new.owner using
      errcode = 'insufficient_privilege', hint = format('as the owner of the schema: select redrive.grant_api(%L)', current_user);
  end if;
  return new;
end $$;

create or replace trigger guard_secret before insert on redrive.webhooks_secret for each row execute function redrive.guard_webhook_secret();

-- And removes those that are of no use any more, and those of whom an operation erases.
create or replace function redrive.prune_webhook_secrets(p_before timestamptz, p_limit bigint) returns setof text
language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from redrive.webhooks_secret where id = any (array(
    select s.id from redrive.webhooks_secret s where s.expires_at < least(p_before, clock_timestamp())
    union all select s.id from redrive.webhooks_secret s where s.created_at < p_before and s.owner like 'endpoint:%'
      and not exists (select from redrive.webhooks_endpoint e where e.id = substr(s.owner, 10)) limit p_limit))
  returning id
$$;

create or replace function redrive.erase_webhook_secrets(p_scope text) returns setof text
language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from redrive.webhooks_secret where (owner = 'account:' || p_scope or owner in (
      select 'endpoint:' || e.id from redrive.webhooks_endpoint e where e.account = p_scope))
    and (redrive.administers() or exists (
      select from redrive.record r where r.collection = 'operation' and r.state = 'running'
        and r.body ->> 'action' = 'erase' and r.body #>> '{which,scope}' = p_scope))
  returning id
$$;

-- How secrets are stored, for who may not read them.
create or replace function redrive.webhook_secret_forms() returns table (sealed boolean, clear boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select exists (select 1 from redrive.webhooks_secret s where starts_with(s.secret, 'fernet:')),
    exists (select 1 from redrive.webhooks_secret s where not starts_with(s.secret, 'fernet:'))
$$;
