-- Batches whose items are jobs at a provider, paid for as they succeed.
create table redrive_batches_remote (
  id            text primary key not null,
  name          text,
  key           text unique,
  digest        text,                                  -- of what it was given; null while it is a draft
  meta          text,                                  -- JSON
  scope         text,
  provider      text not null,
  account       text,                                  -- who pays; null where the price is 0
  price         integer not null,                      -- of an item that succeeds
  items         integer not null default 0,
  webhook_url   text,
  state         text not null default 'draft',
  reason        text,                                  -- why it is failed, or was cancelled
  round         integer not null default 1,            -- how often it was charged: each retry of what failed is one more
  in_round      integer not null default 0,            -- items of this round
  join_id       text,                                  -- counts the items of this round
  frozen        integer not null default 0,            -- money, as the ledger has it: what waits for the end,
  captured      integer not null default 0,            -- what was earned,
  released      integer not null default 0,            -- what went back, over all rounds
  created_at    integer not null default (unixepoch() * 1000000),
  created_by    text not null,
  dispatched_at integer,
  settled_at    integer,
  cancelled_at  integer,                               -- when its end was asked for; it is cancelled when all items have ended
  cancelled_by  text,
  version       integer not null default 0             -- who changes it names the one that was read: see ``remote_moved``
) strict;
create index redrive_batches_remote_scope on redrive_batches_remote (scope) where scope is not null;
create index redrive_batches_remote_created on redrive_batches_remote (created_at);
create index redrive_batches_remote_unsettled on redrive_batches_remote (id) where state in ('draft', 'queued', 'processing');

create table redrive_batches_item (
  batch         text not null,
  n             integer not null,                      -- its place in what the batch was given, from 1
  payload       text,                                  -- JSON
  round         integer not null default 1,
  ordinal       integer not null,                      -- its place among those of its round, from 1
  state         text not null default 'pending',
  task_id       text,                                  -- null until its turn has come
  job           text,                                  -- its id at the provider
  progress      real,
  poll_count    integer not null default 0,
  last_poll_at  integer,
  brought_at    integer,
  started_at    integer,
  ended_at      integer,
  result        text,                                  -- JSON
  error_code    text,
  error_message text,
  failure_type  text,
  released      integer not null default 0,            -- its price went back before the batch was settled
  late          integer not null default 0,            -- what it says came after the batch was settled: not charged
  primary key (batch, n)
) strict, without rowid;
create unique index redrive_batches_item_ordinal on redrive_batches_item (batch, round, ordinal);
create index redrive_batches_item_state on redrive_batches_item (batch, state, n);
create index redrive_batches_item_task on redrive_batches_item (task_id) where task_id is not null;
