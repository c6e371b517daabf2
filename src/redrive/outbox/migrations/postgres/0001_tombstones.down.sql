drop table redrive.outbox_tombstone;
