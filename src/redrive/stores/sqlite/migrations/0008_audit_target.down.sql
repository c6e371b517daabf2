drop index redrive_audit_target;
