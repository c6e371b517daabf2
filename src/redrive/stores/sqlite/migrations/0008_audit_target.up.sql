-- Audit rows about something that is no task are found by it: a batch, an alert, an account.
create index redrive_audit_target on redrive_audit (target, id) where target is not null;
