drop table redrive_name_bound;
drop table redrive_known_name;
drop table redrive_used_name;
alter table redrive_idempotency_key drop column queue;

alter table redrive_worker drop column build;
alter table redrive_attempt drop column build;
alter table redrive_attempt drop column peer;
drop index redrive_failure_group_alias;
alter table redrive_failure_group drop column alias;

alter table redrive_task drop column cut_offs;
alter table redrive_worker drop column cut_off_at;
alter table redrive_worker drop column birth;
alter table redrive_worker drop column machine;

drop index redrive_task_retried;
drop table redrive_retry_total;
drop view redrive_v_counts;
create view redrive_v_counts as
  select x.queue, x.kind, x.queued, x.delayed, x.running, x.paused, x.failed, x.completed, x.cancelled,
    x.dead_letters
  from redrive_total x;
alter table redrive_total drop column forgotten;
alter table redrive_history drop column forgotten;
