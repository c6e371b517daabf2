drop function redrive.webhooks_meant(text, uuid[], uuid[]);
drop function redrive.webhook_secret_forms();
drop function redrive.erase_webhook_secrets(text);
drop function redrive.prune_webhook_secrets(timestamptz, bigint);
drop trigger guard_secret on redrive.webhooks_secret;
drop function redrive.guard_webhook_secret();
drop function redrive.webhook_keys(uuid, uuid);
comment on table redrive.webhooks_secret is null;
