-- No more is settled than was frozen for it, also where the account has more frozen for something else.
alter table redrive.ledger_freeze add constraint ledger_freeze_never_negative check (amount >= 0);
