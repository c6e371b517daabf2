alter table redrive_task drop column deaths;
alter table redrive_worker drop column drain_reason;
alter table redrive_worker drop column drain_by;
alter table redrive_worker drop column drain_at;
alter table redrive_worker drop column stalled_ms;
alter table redrive_worker drop column dead_at;
alter table redrive_worker drop column beating_since;
alter table redrive_worker drop column beats_ms;
