alter table redrive_history drop column trace_parent;
alter table redrive_task drop column trace_parent;
