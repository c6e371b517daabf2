-- What is pruned is found without passing by what has to stay, and endpoints that were given up without looking at all.
drop index redrive_webhooks_delivery_moved_at;
create index redrive_webhooks_delivery_ended on redrive_webhooks_delivery (moved_at) where state in ('completed', 'cancelled');
create index redrive_webhooks_endpoint_given_up on redrive_webhooks_endpoint (disabled_at) where state = 'disabled' and disabled_by = 'redrive';
