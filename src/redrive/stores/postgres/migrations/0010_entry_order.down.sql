create index entry_account on redrive.entry (account);
drop index redrive.entry_place;
alter table redrive.entry drop column id;
