-- Batches whose items are jobs at a provider, paid for as they succeed.
create table redrive.batches_remote (
  id            uuid primary key,
  name          text,
  key           text unique,
  digest        text,                                  -- of what it was given; null while it is a draft
  meta          text,                                  -- JSON
  scope         text,
  provider      text not null,
  account       text,                                  -- who pays; null where the price is 0
  price         bigint not null,                       -- of an item that succeeds
  items         integer not null default 0,
  webhook_url   text,
  state         text not null default 'draft',
  reason        text,                                  -- why it is failed, or was cancelled
  round         integer not null default 1,            -- how often it was charged: each retry of what failed is one more
  in_round      integer not null default 0,            -- items of this round
  join_id       uuid,                                  -- counts the items of this round
  frozen        bigint not null default 0,             -- money, as the ledger has it: what waits for the end,
  captured      bigint not null default 0,             -- what was earned,
  released      bigint not null default 0,             -- what went back, over all rounds
  created_at    timestamptz not null default clock_timestamp(),
  created_by    text not null,
  dispatched_at timestamptz,
  settled_at    timestamptz,
  cancelled_at  timestamptz,                           -- when its end was asked for; it is cancelled when all items have ended
  cancelled_by  text,
  version       integer not null default 0             -- who changes it names the one that was read: see ``remote_moved``
);
create index batches_remote_scope on redrive.batches_remote (scope) where scope is not null;
create index batches_remote_created on redrive.batches_remote (created_at);
create index batches_remote_unsettled on redrive.batches_remote (id) where state in ('draft', 'queued', 'processing');

create table redrive.batches_item (
  batch         uuid not null,
  n             integer not null,                      -- its place in what the batch was given, from 1
  payload       text,                                  -- JSON
  round         integer not null default 1,
  ordinal       integer not null,                      -- its place among those of its round, from 1
  state         text not null default 'pending',
  task_id       uuid,                                  -- null until its turn has come
  job           text,                                  -- its id at the provider
  progress      double precision,
  poll_count    integer not null default 0,
  last_poll_at  timestamptz,
  brought_at    timestamptz,
  started_at    timestamptz,
  ended_at      timestamptz,
  result        text,                                  -- JSON
  error_code    text,
  error_message text,
  failure_type  text,
  released      boolean not null default false,        -- its price went back before the batch was settled
  late          boolean not null default false,        -- what it says came after the batch was settled: not charged
  primary key (batch, n)
);
create unique index batches_item_ordinal on redrive.batches_item (batch, round, ordinal);
create index batches_item_state on redrive.batches_item (batch, state, n);
create index batches_item_task on redrive.batches_item (task_id) where task_id is not null;
