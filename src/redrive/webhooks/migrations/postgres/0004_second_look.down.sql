drop function redrive.webhook_keys(uuid, uuid);
comment on table redrive.webhooks_secret is null;
