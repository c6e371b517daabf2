-- Entries have a place in the books that stays, also when the file is written anew (vacuum), so that statements can be read in pages.
alter table redrive_entry rename to redrive_entry_before;
create table redrive_entry (
  id       integer primary key not null,
  posting  text not null references redrive_posting,
  account  text not null references redrive_account,
  amount   integer not null
) strict;
insert into redrive_entry (posting, account, amount) select posting, account, amount from redrive_entry_before order by rowid;
drop table redrive_entry_before;
create index redrive_entry_account on redrive_entry (account);
create index redrive_entry_posting on redrive_entry (posting);
