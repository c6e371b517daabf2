-- Removes the tables. Reached only with "--down --to 0": this deletes every task.
drop table redrive_entry;
drop table redrive_posting;
drop table redrive_account;
drop table redrive_audit;
drop table redrive_duty;
drop table redrive_worker;
drop table redrive_schedule;
drop table redrive_hold;
drop table redrive_kind;
drop table redrive_idempotency_key;
drop table redrive_total;
drop table redrive_failure_group;
drop table redrive_dead_letter;
drop table redrive_attempt;
drop table redrive_history;
drop table redrive_task;
drop table redrive_position;
