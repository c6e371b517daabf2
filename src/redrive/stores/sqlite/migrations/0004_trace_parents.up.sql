-- The context of whoever enqueued a task: a W3C traceparent, with its tracestate behind a space. Only of those that gave one.

alter table redrive_task add column trace_parent text;
alter table redrive_history add column trace_parent text; -- of cancelled tasks, which may come back
