-- get_live: a task of the live table
select * from redrive_task where id = ?

-- get_history: a finished task
select * from redrive_history where id = ? order by finished_at desc limit 1

-- find_live: live tasks; filters and order follow
select * from redrive_task where true

-- find_history: finished tasks; filters and order follow
select * from redrive_history where true

-- attempts: failed attempts of a task, oldest first
select * from redrive_attempt where task_id = ? order by seq

-- letters_of: dead letters of a task, oldest first
select * from redrive_dead_letter where task_id = ? order by seq

-- audit_of: audit rows of a task, oldest first
select * from redrive_audit where task_id = ? order by id

-- audit_log: audit rows; filters and order follow
select * from redrive_audit where true

-- letters: dead letters; filters and order follow
select * from redrive_dead_letter where true

-- groups: failures by cause, latest first
select * from redrive_failure_group order by last_seen desc limit ?

-- counts: exact totals per queue and kind
select * from redrive_total order by queue, kind

-- balance: one account
select balance from redrive_account where name = ?

-- holds: what is paused
select * from redrive_hold order by at

-- limits: kinds with a lane of their own
select * from redrive_kind order by kind

-- workers: workers seen lately
select * from redrive_worker order by id

-- schedules: periodic tasks
select * from redrive_schedule order by name

-- due_schedules: schedules whose time has come
select * from redrive_schedule where next_at <= ? order by next_at
