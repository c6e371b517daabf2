-- Tasks that belong together. A batch has the id of its join, which counts its items and enqueues what follows.
create table redrive.batches (
  id                uuid primary key,
  name              text,
  key               text unique,
  digest            text,                          -- of what it was given, where it has a key; null until it is sealed
  meta              text,                          -- JSON
  scope             text,
  created_at        timestamptz not null default clock_timestamp(),
  created_by        text not null,
  added_at          timestamptz not null default clock_timestamp(), -- while it is open: when its maker was there last
  cancelled_at      timestamptz,
  cancelled_by      text,
  cancel_reason     text,
  cancel_operation  text,                          -- that cancels its items; without cancelled_at it waits for an approval
  -- An inner batch belongs to its outer one, and to whom that is about.
  parent            uuid
);
create index batches_scope on redrive.batches (scope) where scope is not null;
create index batches_created on redrive.batches (created_at);
create index batches_asked on redrive.batches (id) where cancel_operation is not null and cancelled_at is null;
create index batches_parent on redrive.batches (parent) where parent is not null;

-- Batches whose items are jobs at a provider, paid for as they succeed.
create table redrive.batches_remote (
  id             uuid primary key,
  name           text,
  key            text unique,
  digest         text,                             -- of what it was given; null while it is a draft
  meta           text,                             -- JSON
  scope          text,
  provider       text not null,
  account        text,                             -- who pays; null where the price is 0
  price          bigint not null,                  -- of an item that succeeds
  items          integer not null default 0,
  webhook_url    text,
  state          text not null default 'draft',
  reason         text,                             -- why it is failed, or was cancelled
  round          integer not null default 1,       -- how often it was charged: each retry of what failed is one more
  in_round       integer not null default 0,       -- items of this round
  join_id        uuid,                             -- counts the items of this round
  frozen         bigint not null default 0,        -- money, as the ledger has it: what waits for the end,
  captured       bigint not null default 0,        -- what was earned,
  released       bigint not null default 0,        -- what went back, over all rounds
  created_at     timestamptz not null default clock_timestamp(),
  created_by     text not null,
  dispatched_at  timestamptz,
  settled_at     timestamptz,
  cancelled_at   timestamptz,                      -- when its end was asked for; it is cancelled when all items have ended
  cancelled_by   text,
  version        integer not null default 0,       -- who changes it names the one that was read: see ``remote_moved``
  -- How many items of a settled batch ended how, so that lists need not count them.
  completed      integer not null default 0,
  failed         integer not null default 0,
  cancelled      integer not null default 0,
  -- The task that takes a batch further: while none is alive, a duty brings another.
  step_task      uuid,
  -- How many jobs of a batch may run at once; and when it ended, also where nothing was ever settled for want of money.
  max_in_flight  integer,
  ended_at       timestamptz,
  -- Since when it is being removed, in pieces: what is left of its items says nothing about it any more, and nobody acts on it.
  pruned_at      timestamptz
);
create index batches_remote_scope on redrive.batches_remote (scope) where scope is not null;
create index batches_remote_created on redrive.batches_remote (created_at);
create index batches_remote_unsettled on redrive.batches_remote (id) where state in ('draft', 'queued', 'processing');
create index batches_remote_account on redrive.batches_remote (account) where account is not null;

create table redrive.batches_item (
  batch          uuid not null,
  n              integer not null,                 -- its place in what the batch was given, from 1
  payload        text,                             -- JSON
  round          integer not null default 1,
  ordinal        integer not null,                 -- its place among those of its round, from 1
  state          text not null default 'pending',
  task_id        uuid,                             -- null until its turn has come
  job            text,                             -- its id at the provider
  progress       double precision,
  poll_count     integer not null default 0,
  last_poll_at   timestamptz,
  brought_at     timestamptz,
  started_at     timestamptz,
  ended_at       timestamptz,
  result         text,                             -- JSON
  error_code     text,
  error_message  text,
  failure_type   text,
  released       boolean not null default false,   -- its price went back before the batch was settled
  late           boolean not null default false,   -- what it says came after the batch was settled: not charged
  -- Providers may call when a job has ended: 1 when one did and nobody has looked since, 2 when somebody has.
  called         integer not null default 0,
  -- That an item takes a place at its provider, though nobody has its job's id yet; that it waits for a place, as many jobs run as may,
  -- or has stepped out of its lane, since its start fails; and that it has ended here without the provider's word, and the key of a start that may have gone out, by which a later one finds its job, and
  -- with what the provider said when somebody asked afterwards.
  in_flight      boolean not null default false,
  held           boolean not null default false,
  stepped        boolean not null default false,
  unknown        boolean not null default false,
  start_key      text,
  said           text,
  primary key (batch, n)
);
create unique index batches_item_ordinal on redrive.batches_item (batch, round, ordinal);
create index batches_item_state on redrive.batches_item (batch, state, n);
create index batches_item_task on redrive.batches_item (task_id) where task_id is not null;
create index batches_item_called on redrive.batches_item (batch, n) where called = 1 and state = 'processing';
-- Those that wait or run, the longest first.
create index batches_item_waiting on redrive.batches_item (coalesce(started_at, brought_at)) where state in ('pending', 'processing') and task_id is not null;
-- Two items of a round that have one job at the provider are found.
create index batches_item_job on redrive.batches_item (batch, job) where job is not null;
create index batches_item_in_flight on redrive.batches_item (batch) where in_flight and state = 'pending';
create index batches_item_held on redrive.batches_item (batch, brought_at, n) where held and state = 'pending';
create index batches_item_stepped on redrive.batches_item (batch, ordinal) where stepped and state = 'pending';
create index batches_item_unknown on redrive.batches_item (batch, n) where unknown;
-- What ran all the same, and nobody has paid for.
create index batches_item_ran on redrive.batches_item (batch, n) where said = 'succeeded' and state in ('failed', 'cancelled');

-- Nobody but the feature enqueues these.
insert into redrive.reserved_kind (begins, feature) values
  ('BATCH_DISPATCH', 'batches'),
  ('BATCH_SETTLE', 'batches'),
  ('BATCH_RELEASE', 'batches'),
  ('BATCH_LATE', 'batches'),
  ('BATCH_ITEM_', 'batches'),
  ('BATCHES_ENDED', 'batches'),
  ('BATCH_RECONCILE', 'batches');

-- What the books name is known as long as the books: what stays of a batch that was paid for when it is pruned.
create table redrive.batches_paid (
  id         uuid primary key,
  account    text not null,
  price      bigint not null,
  round      integer not null,
  completed  integer not null,
  captured   bigint not null,
  released   bigint not null
);

-- Who takes places at a provider holds its row: a lock that needs no right would let anybody keep everyone waiting. It says how many
-- there are (null: any number), since whoever is asked what a batch waits for may have other settings than the workers.
create table redrive.batches_flight (provider text primary key, most integer) with (fillfactor = 50);
