-- Tasks that belong together. A batch has the id of its join, which counts its items and enqueues what follows.
create table redrive_batches (
  id                text primary key not null,
  name              text,
  key               text unique,
  digest            text,                              -- of what it was given, where it has a key; null until it is sealed
  meta              text,                              -- JSON
  scope             text,
  created_at        integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  created_by        text not null,
  added_at          integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)), -- while it is open: when its maker was there last
  cancelled_at      integer,
  cancelled_by      text,
  cancel_reason     text,
  cancel_operation  text                               -- that cancels its items; without cancelled_at it waits for an approval
) strict;
create index redrive_batches_scope on redrive_batches (scope) where scope is not null;
create index redrive_batches_created on redrive_batches (created_at);
create index redrive_batches_asked on redrive_batches (id) where cancel_operation is not null and cancelled_at is null;
