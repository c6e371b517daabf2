-- enqueue: many new tasks; answers those whose key already named a task
select id, existing, conflict
from redrive.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- be_brief: this transaction ends if its client falls silent
set local idle_in_transaction_session_timeout = '10s';

-- enqueue_one: one new task without a key, at a third of the price
select redrive.enqueue($1, $2, $3, $4, $5, make_interval(secs => $6), $7, make_interval(secs => $8), $9, $10, $11, null, $12);

-- add: the same for the fleet itself
select id, existing, conflict
from redrive.add($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- cycle: settle and claim
select * from redrive.cycle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- move: transitions decided by the state machine
select redrive.move($1);

-- complete: completions
select redrive.complete($1, $2, $3, $4);

-- renew: heartbeat and progress
select redrive.renew($1, $2, $3, $4, $5);

-- tick: a worker's beat
select * from redrive.tick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- expired: leases that ran out
select * from redrive.expired($1, $2);

-- claimed_by: what these tokens hold; only asked after an answer to a claim was lost. $2 (seconds from now) bounds how
-- soon their leases can end: entries of older claims may lie in the index, dead
select t.id, t.lease_token as token, t.attempt_count, t.max_attempts from redrive.task t
where t.state = 'running' and t.lease_expires_at >= (select clock_timestamp()) + make_interval(secs => $2)
  and t.lease_token = any ($1);

-- hold: pause or resume a queue, kind or group
select redrive.set_hold($1, $2, $3, $4, $5);

-- limit: what the fleet may do with a kind
select redrive.set_limit($1, $2, $3, $4);

-- cancel: ask for a running task to stop
select redrive.request_cancel($1, $2, $3);

-- declare: all schedules of an application
select redrive.declare_schedules($1, $2);

-- fire: true for one caller per planned run
select redrive.fire($1, $2, $3);

-- post: one movement of money
select redrive.post($1, $2, $3, $4);

-- audit: audit rows of their own
insert into redrive.audit (at, actor, action, reason, task_id, batch_id, before, after)
select clock_timestamp(), x.actor, x.action, x.reason, x.task_id, x.batch_id, x.before, x.after
from jsonb_to_recordset($1) x(actor text, action text, reason text, task_id uuid, batch_id text, before jsonb, after jsonb);

-- due_schedules: schedules whose time has come
select clock_timestamp() as now, s.* from redrive.schedule s where s.next_at <= clock_timestamp() order by s.next_at;

-- get_live: a task of the live table
select t.*, t.state::text as state_name from redrive.task t where t.id = $1;

-- get_history: a finished task; $2 (the time in its id) leaves out partitions of earlier days
select h.*, h.state::text as state_name from redrive.history h
where h.id = $1 and ($2::timestamptz is null or h.finished_at >= $2) order by h.finished_at desc limit 1;

-- find_live: live tasks, newest first
select t.*, t.state::text as state_name from redrive.task t
where ($1::text[] is null or t.state::text = any ($1)) and ($2::text is null or t.kind = $2)
  and ($3::text is null or t.queue = $3) and ($4::text is null or t.task_group = $4) and ($5::text is null or t.scope = $5)
  and ($6::text is null or t.trace_id = $6) and ($7::text is null or t.error_code = $7)
  and ($8::text is null or t.error_reason = $8) and ($9::text is null or t.error_fingerprint = $9)
  and ($10::uuid is null or t.id < $10)
order by t.id desc limit $11;

-- find_history: finished tasks, newest first
select h.*, h.state::text as state_name from redrive.history h
where ($1::text[] is null or h.state::text = any ($1)) and ($2::text is null or h.kind = $2)
  and ($3::text is null or h.queue = $3) and ($4::text is null or h.task_group = $4) and ($5::text is null or h.scope = $5)
  and ($6::text is null or h.trace_id = $6) and ($7::uuid is null or h.id < $7)
order by h.id desc limit $8;

-- attempts: failed attempts of a task, oldest first
select * from redrive.attempt where task_id = $1 order by seq;

-- letters_of: dead letters of a task, oldest first
select * from redrive.dead_letter where task_id = $1 order by seq;

-- audit_of: audit rows of a task, oldest first
select * from redrive.audit where task_id = $1 order by id;

-- audit_log: newest audit rows
select * from redrive.audit
where ($2::text is null or action = $2) and ($3::text is null or actor = $3) order by id desc limit $1;

-- letters: dead letters, newest first
select d.* from redrive.dead_letter d
where ($1::text is null or d.kind = $1) and ($2::text is null or d.queue = $2) and ($3::text is null or d.task_group = $3)
  and ($4::text is null or d.scope = $4) and ($5::text is null or d.trace_id = $5)
  and ($6::text is null or d.error_code = $6) and ($7::text is null or d.error_reason = $7)
  and ($8::text is null or d.error_fingerprint = $8)
  and ($9::uuid is null or d.seq < (select b.seq from redrive.dead_letter b where b.id = $9))
order by d.seq desc limit $10;

-- groups: failures by cause, latest first
select x.fingerprint, sum(x.n)::bigint as n, min(x.code) as code, min(x.reason) as reason,
  min(x.failure_type) as failure_type, (array_agg(x.message order by x.last_seen desc))[1] as message,
  (array_agg(x.kind order by x.last_seen desc))[1] as kind, (array_agg(x.sample_task order by x.last_seen desc))[1] as sample_task,
  min(x.first_seen) as first_seen, max(x.last_seen) as last_seen
from (
  select fingerprint, n, code, reason, failure_type, message, kind, sample_task, first_seen, last_seen
  from redrive.failure_group
  union all
  select fingerprint, n, code, reason, failure_type, message, kind, sample_task, at, at from redrive.failure_delta
) x group by x.fingerprint order by max(x.last_seen) desc limit $1;

-- counts: exact totals per queue and kind
select * from redrive.v_counts order by queue, kind;

-- balance: one account
select balance from redrive.account where name = $1;

-- holds: what is paused
select * from redrive.hold order by at;

-- limits: kinds with a lane of their own
select * from redrive.kind order by kind;

-- workers: workers seen lately
select * from redrive.worker order by id;

-- schedules: periodic tasks
select * from redrive.schedule order by name;

-- fold: deltas into totals
select redrive.fold($1);

-- recount: running tasks of limited kinds, counted anew
select redrive.recount();

-- promote: what is due in any queue
select redrive.promote_everywhere($1);

-- partitions: day partitions of history
select redrive.partitions($1);

-- prune: what is past its keep
select removed, more from redrive.prune($1, $2, $3);

-- now: the server's clock
select clock_timestamp();
