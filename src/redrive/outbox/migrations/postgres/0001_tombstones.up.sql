-- Versions of deleted documents, for sinks that forget them. The key is a digest: nothing here says who it was.
create table redrive.outbox_tombstone (
  projection  text not null,
  key_digest  text not null,
  version     bigint not null,
  deleted_at  timestamptz not null default clock_timestamp(),
  primary key (projection, key_digest)
);
create index outbox_tombstone_deleted on redrive.outbox_tombstone (deleted_at);
