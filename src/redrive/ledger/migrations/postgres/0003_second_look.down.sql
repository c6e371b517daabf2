comment on table redrive.ledger_account is null;
