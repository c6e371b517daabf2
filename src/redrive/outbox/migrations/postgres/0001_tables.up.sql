-- Versions of deleted documents, for sinks that forget them. The key is a digest: nothing here says who it was.
create table redrive.outbox_tombstone (
  projection  text not null,
  key_digest  text not null,
  version     bigint not null,
  deleted_at  timestamptz not null default clock_timestamp(),
  primary key (projection, key_digest)
);
create index outbox_tombstone_deleted on redrive.outbox_tombstone (deleted_at);

-- Lives of keys that were deleted: an entity that is created anew may begin with a version that it had before. Versions of a life count
-- from its base, which lies behind the delete that ended the life before. Whoever publishes has the entity's row, so deletes and creates
-- of a key come one after the other here, whatever arrives at the sink when.
create table redrive.outbox_life (
  projection  text not null,
  key         text collate "C" not null,
  base        bigint not null default 0,
  deleted     bigint,                              -- the version of the delete that ended it; null while it lasts
  changes     bigint not null default 0,           -- whoever acts on what was read a moment ago compares these
  changed_at  timestamptz not null default clock_timestamp(),
  primary key (projection, key)
);
create index outbox_life_pruned on redrive.outbox_life (changed_at) where deleted is not null or base = 0;
create index outbox_life_later on redrive.outbox_life (projection, key) where base > 0;  -- for verify, which compares lives
