drop view redrive_outbox_publish;
