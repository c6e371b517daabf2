-- Accounts that somebody opened. Their money is in redrive.account: "account:NAME" is available, "frozen:NAME" is not.
create table redrive.ledger_account (
  name       text collate "C" primary key,
  label      text,
  opened_at  timestamptz not null default clock_timestamp(),
  opened_by  text not null
);

-- What a posting was frozen, captured or released for.
create table redrive.ledger_movement (
  posting    text primary key,
  account    text collate "C" not null,
  reference  text not null
);
create index ledger_movement_reference on redrive.ledger_movement (reference, account);

-- What is frozen now, by what it is frozen for. Derived from the entries whenever one of them moves.
create table redrive.ledger_freeze (
  account    text collate "C" not null,
  reference  text not null,
  amount     bigint not null,
  since      timestamptz not null default clock_timestamp(),
  moved_at   timestamptz not null default clock_timestamp(),
  primary key (account, reference)
);
create index ledger_freeze_reference on redrive.ledger_freeze (reference);
create index ledger_freeze_moved_at on redrive.ledger_freeze (moved_at);

-- No more is settled than was frozen for it, also where the account has more frozen for something else.
alter table redrive.ledger_freeze add constraint ledger_freeze_never_negative check (amount >= 0);

-- Accounts are opened, and lose their label when somebody is erased; nobody removes one.
comment on table redrive.ledger_account is 'For workers: select, insert, update (label)';
