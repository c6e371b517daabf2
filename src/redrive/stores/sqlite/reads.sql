-- get_live: a task of the live table
select * from task where id = ?

-- get_history: a finished task
select * from history where id = ? order by finished_at desc limit 1

-- find_live: live tasks; filters and order follow
select * from task where true

-- find_history: finished tasks; filters and order follow
select * from history where true

-- attempts: failed attempts of a task, oldest first
select * from attempt where task_id = ? order by seq

-- letters_of: dead letters of a task, oldest first
select * from dead_letter where task_id = ? order by seq

-- audit_of: audit rows of a task, oldest first
select * from audit where task_id = ? order by id

-- audit_log: audit rows; filters and order follow
select * from audit where true

-- letters: dead letters; filters and order follow
select * from dead_letter where true

-- groups: failures by cause, latest first
select * from failure_group order by last_seen desc limit ?

-- counts: exact totals per queue and kind
select * from total order by queue, kind

-- balance: one account
select balance from account where name = ?

-- holds: what is paused
select * from hold order by at

-- limits: kinds with a lane of their own
select * from kind order by kind

-- workers: workers seen lately
select * from worker order by id

-- schedules: periodic tasks
select * from schedule order by name

-- due_schedules: schedules whose time has come
select * from schedule where next_at <= ? order by next_at
