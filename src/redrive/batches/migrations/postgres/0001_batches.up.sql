-- Tasks that belong together. A batch has the id of its join, which counts its items and enqueues what follows.
create table redrive.batches (
  id                uuid primary key,
  name              text,
  key               text unique,
  digest            text,                              -- of what it was given, where it has a key; null until it is sealed
  meta              text,                              -- JSON
  scope             text,
  created_at        timestamptz not null default clock_timestamp(),
  created_by        text not null,
  added_at          timestamptz not null default clock_timestamp(), -- while it is open: when its maker was there last
  cancelled_at      timestamptz,
  cancelled_by      text,
  cancel_reason     text,
  cancel_operation  text                               -- that cancels its items; without cancelled_at it waits for an approval
);
create index batches_scope on redrive.batches (scope) where scope is not null;
create index batches_created on redrive.batches (created_at);
create index batches_asked on redrive.batches (id) where cancel_operation is not null and cancelled_at is null;
