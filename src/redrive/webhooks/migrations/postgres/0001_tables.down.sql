drop table redrive.webhooks_endpoint, redrive.webhooks_secret, redrive.webhooks_delivery, redrive.webhooks_attempt;
delete from redrive.reserved_kind where feature = 'webhooks';
drop function if exists redrive.webhook_keys, redrive.guard_webhook_secret, redrive.prune_webhook_secrets, redrive.erase_webhook_secrets, redrive.webhook_secret_forms, redrive.webhooks_meant;
