create table redrive.webhooks_endpoint (
  id               text primary key,
  account          text not null,
  url              text not null,
  events           text not null,
  description      text,
  state            text not null check (state in ('enabled', 'disabled')),
  disabled_at      timestamptz,
  disabled_by      text,
  disabled_reason  text,
  direct           boolean not null default false,
  failing_since    timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  used_at          timestamptz not null default clock_timestamp()
);
create index webhooks_endpoint_account on redrive.webhooks_endpoint (account, id);
create index webhooks_endpoint_failing on redrive.webhooks_endpoint (failing_since) where failing_since is not null;
create index webhooks_endpoint_direct on redrive.webhooks_endpoint (used_at) where direct;
create index webhooks_endpoint_given_up on redrive.webhooks_endpoint (disabled_at) where state = 'disabled' and disabled_by = 'redrive';

create table redrive.webhooks_secret (
  id          text primary key,
  owner       text not null,
  secret      text not null,
  created_at  timestamptz not null default clock_timestamp(),
  expires_at  timestamptz
);
create index webhooks_secret_owner on redrive.webhooks_secret (owner);

create table redrive.webhooks_delivery (
  task_id      uuid primary key,
  endpoint_id  text not null,
  account      text not null,
  event_id     text not null,
  event_type   text not null,
  round        integer not null,
  state        text not null,
  created_at   timestamptz not null default clock_timestamp(),
  moved_at     timestamptz not null default clock_timestamp(),
  unique (event_id, endpoint_id, round)
);
create index webhooks_delivery_endpoint on redrive.webhooks_delivery (endpoint_id, task_id);
create index webhooks_delivery_state on redrive.webhooks_delivery (state, task_id);
create index webhooks_delivery_account on redrive.webhooks_delivery (account, task_id);
create index webhooks_delivery_ended on redrive.webhooks_delivery (moved_at) where state in ('completed', 'cancelled');

create table redrive.webhooks_attempt (
  id        uuid primary key,
  task_id   uuid not null,
  attempt   integer not null,
  replay    integer not null,
  at        timestamptz not null default clock_timestamp(),
  outcome   text not null,
  status    integer,
  ms        double precision not null,
  request   text,
  response  text,
  error     text
);
create index webhooks_attempt_task on redrive.webhooks_attempt (task_id, id);
create index webhooks_attempt_at on redrive.webhooks_attempt (at);

-- Nobody but the feature enqueues these.
insert into redrive.reserved_kind (begins, feature) values
  ('WEBHOOK_EVENT', 'webhooks'),
  ('WEBHOOK_DELIVERY', 'webhooks');

-- A worker signs deliveries whose leases it holds, and sees no other secret.
comment on table redrive.webhooks_secret is 'For workers: select (id, owner, created_at, expires_at), insert';
