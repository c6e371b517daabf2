-- Tasks that belong together. A batch has the id of its join, which counts its items and enqueues what follows.
create table redrive_batches (
  id                text primary key not null,
  name              text,
  key               text unique,
  digest            text,                          -- of what it was given, where it has a key; null until it is sealed
  meta              text,                          -- JSON
  scope             text,
  created_at        integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)),
  created_by        text not null,
  added_at          integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer)), -- while it is open: when its maker was there last
  cancelled_at      integer,
  cancelled_by      text,
  cancel_reason     text,
  cancel_operation  text,                          -- that cancels its items; without cancelled_at it waits for an approval
  -- An inner batch belongs to its outer one, and to whom that is about.
  parent            text
) strict;
create index redrive_batches_scope on redrive_batches (scope) where scope is not null;
create index redrive_batches_created on redrive_batches (created_at);
create index redrive_batches_asked on redrive_batches (id) where cancel_operation is not null and cancelled_at is null;
create index redrive_batches_parent on redrive_batches (parent) where parent is not null;

-- Batches whose items are jobs at a provider, paid for as they succeed.
create table redrive_batches_remote (
  id             text primary key not null,
  name           text,
  key            text unique,
  digest         text,                             -- of what it was given; null while it is a draft
  meta           text,                             -- JSON
  scope          text,
  provider       text not null,
  account        text,                             -- who pays; null where the price is 0
  price          integer not null,                 -- of an item that succeeds
  items          integer not null default 0,
  webhook_url    text,
  state          text not null default 'draft',
  reason         text,                             -- why it is failed, or was cancelled
  round          integer not null default 1,       -- how often it was charged: each retry of what failed is one more
  in_round       integer not null default 0,       -- items of this round
  join_id        text,                             -- counts the items of this round
  frozen         integer not null default 0,       -- money, as the ledger has it: what waits for the end,
  captured       integer not null default 0,       -- what was earned,
  released       integer not null default 0,       -- what went back, over all rounds
  created_at     integer not null default (unixepoch() * 1000000),
  created_by     text not null,
  dispatched_at  integer,
  settled_at     integer,
  cancelled_at   integer,                          -- when its end was asked for; it is cancelled when all items have ended
  cancelled_by   text,
  version        integer not null default 0,       -- who changes it names the one that was read: see ``remote_moved``
  -- How many items of a settled batch ended how, so that lists need not count them.
  completed      integer not null default 0,
  failed         integer not null default 0,
  cancelled      integer not null default 0,
  -- The task that takes a batch further: while none is alive, a duty brings another.
  step_task      text,
  -- How many jobs of a batch may run at once; and when it ended, also where nothing was ever settled for want of money.
  max_in_flight  integer,
  ended_at       integer,
  -- Since when it is being removed, in pieces: what is left of its items says nothing about it any more, and nobody acts on it.
  pruned_at      integer
) strict;
create index redrive_batches_remote_scope on redrive_batches_remote (scope) where scope is not null;
create index redrive_batches_remote_created on redrive_batches_remote (created_at);
create index redrive_batches_remote_unsettled on redrive_batches_remote (id) where state in ('draft', 'queued', 'processing');
-- Of whose account it is, is asked when that is erased.
create index redrive_batches_remote_account on redrive_batches_remote (account) where account is not null;

create table redrive_batches_item (
  batch          text not null,
  n              integer not null,                 -- its place in what the batch was given, from 1
  payload        text,                             -- JSON
  round          integer not null default 1,
  ordinal        integer not null,                 -- its place among those of its round, from 1
  state          text not null default 'pending',
  task_id        text,                             -- null until its turn has come
  job            text,                             -- its id at the provider
  progress       real,
  poll_count     integer not null default 0,
  last_poll_at   integer,
  brought_at     integer,
  started_at     integer,
  ended_at       integer,
  result         text,                             -- JSON
  error_code     text,
  error_message  text,
  failure_type   text,
  released       integer not null default 0,       -- its price went back before the batch was settled
  late           integer not null default 0,       -- what it says came after the batch was settled: not charged
  -- Providers may call when a job has ended: 1 when one did and nobody has looked since, 2 when somebody has.
  called         integer not null default 0,
  -- That an item takes a place at its provider, though nobody has its job's id yet; that it waits for a place, as many jobs run as may,
  -- or has stepped out of its lane, since its start fails; and that it has ended here without the provider's word, and the key of a start that may have gone out, by which a later one finds its job, and
  -- with what the provider said when somebody asked afterwards.
  in_flight      integer not null default 0,
  held           integer not null default 0,
  stepped        integer not null default 0,
  unknown        integer not null default 0,
  start_key      text,
  said           text,
  primary key (batch, n)
) strict, without rowid;
create unique index redrive_batches_item_ordinal on redrive_batches_item (batch, round, ordinal);
create index redrive_batches_item_state on redrive_batches_item (batch, state, n);
create index redrive_batches_item_task on redrive_batches_item (task_id) where task_id is not null;
create index redrive_batches_item_called on redrive_batches_item (batch, n) where called = 1 and state = 'processing';
-- Those that wait or run, the longest first.
create index redrive_batches_item_waiting on redrive_batches_item (coalesce(started_at, brought_at)) where state in ('pending', 'processing') and task_id is not null;
-- Two items of a round that have one job at the provider are found.
create index redrive_batches_item_job on redrive_batches_item (batch, job) where job is not null;
create index redrive_batches_item_in_flight on redrive_batches_item (batch) where in_flight and state = 'pending';
create index redrive_batches_item_held on redrive_batches_item (batch, brought_at, n) where held and state = 'pending';
create index redrive_batches_item_stepped on redrive_batches_item (batch, ordinal) where stepped and state = 'pending';
create index redrive_batches_item_unknown on redrive_batches_item (batch, n) where unknown;
-- What ran all the same, and nobody has paid for.
create index redrive_batches_item_ran on redrive_batches_item (batch, n) where said = 'succeeded' and state in ('failed', 'cancelled');

-- What the books name is known as long as the books: what stays of a batch that was paid for when it is pruned.
create table redrive_batches_paid (
  id         text primary key,
  account    text not null,
  price      integer not null,
  round      integer not null,
  completed  integer not null,
  captured   integer not null,
  released   integer not null
) without rowid;

create trigger redrive_batches_keep_paid before delete on redrive_batches_remote
when old.account is not null and old.state <> 'draft'
begin
  insert or ignore into redrive_batches_paid (id, account, price, round, completed, captured, released)
  values (old.id, old.account, old.price, old.round, old.completed, old.captured, old.released);
end;

-- How many places a provider has, as its workers were told (null: any number): whoever is asked what a batch waits for may have other
-- settings.
create table redrive_batches_flight (provider text primary key, most integer) without rowid;
