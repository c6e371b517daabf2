drop table redrive_outbox_tombstone;
