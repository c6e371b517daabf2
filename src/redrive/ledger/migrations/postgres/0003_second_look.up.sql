-- Accounts are opened, and lose their label when somebody is erased; nobody removes one.
comment on table redrive.ledger_account is 'For workers: select, insert, update (label)';
