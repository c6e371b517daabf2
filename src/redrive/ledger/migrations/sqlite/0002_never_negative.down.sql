alter table redrive_ledger_freeze rename to redrive_ledger_freeze_before;
create table redrive_ledger_freeze (
  account    text not null,
  reference  text not null,
  amount     integer not null,
  since      integer not null default (unixepoch() * 1000000),
  moved_at   integer not null default (unixepoch() * 1000000),
  primary key (account, reference)
) strict;
insert into redrive_ledger_freeze (account, reference, amount, since, moved_at)
select account, reference, amount, since, moved_at from redrive_ledger_freeze_before;
drop table redrive_ledger_freeze_before;
create index redrive_ledger_freeze_reference on redrive_ledger_freeze (reference);
create index redrive_ledger_freeze_moved_at on redrive_ledger_freeze (moved_at);
