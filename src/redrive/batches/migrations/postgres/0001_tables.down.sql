drop table redrive.batches, redrive.batches_remote, redrive.batches_item, redrive.batches_paid, redrive.batches_flight;
drop function if exists redrive.batches_keep_paid, redrive.guard_batch_scope, redrive.batches_meant;
delete from redrive.reserved_kind where feature = 'batches';
