-- Accounts that somebody opened. Their money is in redrive_account: "account:NAME" is available, "frozen:NAME" is not.
create table redrive_ledger_account (
  name       text primary key not null,
  label      text,
  opened_at  integer not null default (unixepoch() * 1000000),
  opened_by  text not null
) strict;

-- What a posting was frozen, captured or released for.
create table redrive_ledger_movement (
  posting    text primary key not null,
  account    text not null,
  reference  text not null
) strict;
create index redrive_ledger_movement_reference on redrive_ledger_movement (reference, account);

--MARK redrive_ledger_freeze
create table redrive_ledger_freeze (
  account    text not null,
  reference  text not null,
  amount     integer not null constraint ledger_freeze_never_negative check (amount >= 0),
  since      integer not null default (unixepoch() * 1000000),
  moved_at   integer not null default (unixepoch() * 1000000),
  primary key (account, reference)
) strict;
create index redrive_ledger_freeze_reference on redrive_ledger_freeze (reference);
create index redrive_ledger_freeze_moved_at on redrive_ledger_freeze (moved_at);
