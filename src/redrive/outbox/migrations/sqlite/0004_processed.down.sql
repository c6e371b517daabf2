drop index if exists redrive_history_outbox_processed;
