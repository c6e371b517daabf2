drop table redrive.webhooks_attempt;
drop table redrive.webhooks_delivery;
drop table redrive.webhooks_secret;
drop table redrive.webhooks_endpoint;
