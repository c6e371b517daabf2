-- Entries have a place in the books. It is given under the lock of their accounts, so that in its order no account is ever below
-- zero, and statements can be read in pages.
alter table redrive.entry add column id bigint generated always as identity;
alter table redrive.entry add constraint entry_pkey primary key (id);
create index entry_place on redrive.entry (account, id);
drop index redrive.entry_account;
