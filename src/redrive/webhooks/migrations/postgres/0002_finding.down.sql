drop index redrive.webhooks_endpoint_given_up;
drop index redrive.webhooks_delivery_ended;
create index webhooks_delivery_moved_at on redrive.webhooks_delivery (moved_at);
