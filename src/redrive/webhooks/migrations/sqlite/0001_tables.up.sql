create table redrive_webhooks_endpoint (
  id               text primary key not null,
  account          text not null,
  url              text not null,
  events           text not null,
  description      text,
  state            text not null check (state in ('enabled', 'disabled')),
  disabled_at      integer,
  disabled_by      text,
  disabled_reason  text,
  direct           integer not null default 0,
  failing_since    integer,
  created_at       integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  used_at          integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;
create index redrive_webhooks_endpoint_account on redrive_webhooks_endpoint (account, id);
create index redrive_webhooks_endpoint_failing on redrive_webhooks_endpoint (failing_since) where failing_since is not null;
create index redrive_webhooks_endpoint_direct on redrive_webhooks_endpoint (used_at) where direct = 1;
create index redrive_webhooks_endpoint_given_up on redrive_webhooks_endpoint (disabled_at) where state = 'disabled' and disabled_by = 'redrive';

create table redrive_webhooks_secret (
  id          text primary key not null,
  owner       text not null,
  secret      text not null,
  created_at  integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  expires_at  integer
) strict;
create index redrive_webhooks_secret_owner on redrive_webhooks_secret (owner);

create table redrive_webhooks_delivery (
  task_id      text primary key not null,
  endpoint_id  text not null,
  account      text not null,
  event_id     text not null,
  event_type   text not null,
  round        integer not null,
  state        text not null,
  created_at   integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  moved_at     integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  unique (event_id, endpoint_id, round)
) strict;
create index redrive_webhooks_delivery_endpoint on redrive_webhooks_delivery (endpoint_id, task_id);
create index redrive_webhooks_delivery_state on redrive_webhooks_delivery (state, task_id);
create index redrive_webhooks_delivery_account on redrive_webhooks_delivery (account, task_id);
create index redrive_webhooks_delivery_ended on redrive_webhooks_delivery (moved_at) where state in ('completed', 'cancelled');

create table redrive_webhooks_attempt (
  id        text primary key not null,
  task_id   text not null,
  attempt   integer not null,
  replay    integer not null,
  at        integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  outcome   text not null,
  status    integer,
  ms        real not null,
  request   text,
  response  text,
  error     text
) strict;
create index redrive_webhooks_attempt_task on redrive_webhooks_attempt (task_id, id);
create index redrive_webhooks_attempt_at on redrive_webhooks_attempt (at);
