-- Removes the tables. Reached only with "--down --to 0": this deletes every task.
drop table redrive.entry, redrive.posting, redrive.account, redrive.audit, redrive.record, redrive.pruned, redrive.duty, redrive.series, redrive.series_sheet, redrive.worker,
  redrive.schedule, redrive.resuming, redrive.hold, redrive.kind, redrive.idempotency_key, redrive.total, redrive.total_delta, redrive.failed_total,
  redrive.failed_delta, redrive.failed_sum, redrive.failure_group, redrive.failure_hour,
  redrive.failure_delta, redrive.dead_letter, redrive.attempt, redrive.history, redrive.task, redrive.task_join, redrive.join_delta,
  redrive.move_lock, redrive.fold_lock, redrive.series_lock, redrive.partition_lock;
drop sequence redrive.position;
drop sequence redrive.failed_seq;
drop type redrive.claimed;
drop type redrive.state;
drop domain redrive.timeout_ms;
drop domain redrive.attempts;
drop domain redrive.payload;
drop domain redrive.label;
drop domain redrive.name;
drop function redrive.check_payload(jsonb);
