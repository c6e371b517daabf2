drop table redrive.ledger_freeze, redrive.ledger_movement, redrive.ledger_account;
