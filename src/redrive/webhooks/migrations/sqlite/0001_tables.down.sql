drop table redrive_webhooks_attempt;
drop table redrive_webhooks_delivery;
drop table redrive_webhooks_secret;
drop table redrive_webhooks_endpoint;
