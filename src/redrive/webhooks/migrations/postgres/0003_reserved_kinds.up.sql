-- Nobody but the feature enqueues these.
insert into redrive.reserved_kind (begins, feature) values
  ('WEBHOOK_EVENT', 'webhooks'),
  ('WEBHOOK_DELIVERY', 'webhooks');
