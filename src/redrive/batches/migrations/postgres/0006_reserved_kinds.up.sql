-- Nobody but the feature enqueues these.
insert into redrive.reserved_kind (begins, feature) values
  ('BATCH_DISPATCH', 'batches'),
  ('BATCH_SETTLE', 'batches'),
  ('BATCH_RELEASE', 'batches'),
  ('BATCH_LATE', 'batches'),
  ('BATCH_ITEM_', 'batches'),
  ('BATCHES_ENDED', 'batches');
