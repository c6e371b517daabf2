drop table redrive_ledger_freeze;
drop table redrive_ledger_movement;
drop table redrive_ledger_account;
