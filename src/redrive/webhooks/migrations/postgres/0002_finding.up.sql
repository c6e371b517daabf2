-- What is pruned is found without passing by what has to stay, and endpoints that were given up without looking at all.
drop index redrive.webhooks_delivery_moved_at;
create index webhooks_delivery_ended on redrive.webhooks_delivery (moved_at) where state in ('completed', 'cancelled');
create index webhooks_endpoint_given_up on redrive.webhooks_endpoint (disabled_at) where state = 'disabled' and disabled_by = 'redrive';
