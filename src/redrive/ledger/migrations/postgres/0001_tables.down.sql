drop table redrive.ledger_account, redrive.ledger_movement, redrive.ledger_freeze;
