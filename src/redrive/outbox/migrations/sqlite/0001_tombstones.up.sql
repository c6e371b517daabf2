-- Versions of deleted documents, for sinks that forget them. The key is a digest: nothing here says who it was.
create table redrive_outbox_tombstone (
  projection  text not null,
  key_digest  text not null,
  version     integer not null,
  deleted_at  integer not null default (unixepoch() * 1000000),
  primary key (projection, key_digest)
) strict, without rowid;
create index redrive_outbox_tombstone_deleted on redrive_outbox_tombstone (deleted_at);
