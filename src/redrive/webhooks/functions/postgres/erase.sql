-- By what they carry themselves: which event a delivery is of is not for a worker's role to say.
create or replace function redrive.webhooks_meant(p_scope text, p_tasks uuid[], p_own uuid[]) returns setof uuid
language sql stable set search_path = pg_catalog, pg_temp as $$
  select d.id from redrive.history d where d.id = any (p_tasks) and d.kind = 'WEBHOOK_DELIVERY' and 'redrive:webhook-event:' || (d.facts ->> 'event') in (
    select e.idempotency_key from redrive.history e where e.id = any (p_own) and e.kind = 'WEBHOOK_EVENT')
$$;

comment on function redrive.webhooks_meant(text, uuid[], uuid[]) is 'For erasing: deliveries of events that are meant';
