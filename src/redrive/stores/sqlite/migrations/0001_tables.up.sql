-- Tables of redrive. Times are microseconds since 1970-01-01 UTC, by the store's clock; ids are canonical UUID text.
-- strict: a value of the wrong type is refused instead of kept.

-- Where a row stands in its queue. Taken anew each time a row becomes ready, so that rows always join at the tail.
create table redrive_position (
  one    integer primary key check (one = 1),
  value  integer not null
) strict;
insert into redrive_position (one, value) values (1, 0);

-- The order in which tasks failed: a set of failed tasks is "up to here", and stays the same while others fail.
create table redrive_failed_seq (
  one    integer primary key check (one = 1),
  value  integer not null
) strict;
insert into redrive_failed_seq (one, value) values (1, 0);

-- Live tasks: queued, delayed, running, paused, failed. Wide columns last: narrow ones are read without them.
create table redrive_task (
  id                     text primary key not null,
  created_at             integer not null,
  position               integer not null default 0,
  run_at                 integer,
  next_attempt_at        integer,
  last_attempt_at        integer,
  lease_token            text,
  settled_token          text,                     -- whose settlement last sent it back to wait
  lease_expires_at       integer,
  cancel_requested_at    integer,
  failed_at              integer,
  failed_seq             integer,
  last_replayed_at       integer,
  state                  text not null,
  attempt_count          integer not null default 0,
  max_attempts           integer not null check (max_attempts > 0),
  replay_count           integer not null default 0,
  timeout_ms             integer check (timeout_ms > 0),
  priority               integer not null default 0,
  kind                   text not null,
  queue                  text not null,
  lane                   text not null default '', -- '' = the queue's open lane, else the kind whose own lane it is in
  task_group             text,
  scope                  text,
  trace_id               text,
  idempotency_key        text,
  worker_id              text,
  paused_by              text,
  error_code             text,
  error_reason           text,
  failure_type           text,
  error_fingerprint      text,
  dead_reason            text,
  last_replayed_by       text,
  last_replayed_reason   text,
  last_replayed_bulk_id  text,                     -- the bulk operation that retried it last
  payload                text,
  progress               text,
  memo                   text,                     -- what a snoozed handler wants back
  error_message          text,
  error_stack            text,
  error_summary          text,                     -- JSON: what of it may be shown to everybody
  feature                text,                     -- who reacts to its moves
  facts                  text,                     -- JSON: what the feature wants to know then
  join_id                text,                     -- the join that it is a member of
  deaths                 integer not null default 0, -- workers that were lost while they had it
  apart                  integer not null default 0, -- its worker has not begun it yet: it waits to be alone
  -- The context of whoever enqueued a task: a W3C traceparent, with its tracestate behind a space. Only of those that gave one.
  trace_parent           text,
  cut_offs               integer not null default 0, -- how often in a row its worker fell silent so
  constraint task_state_live check (state in ('queued', 'delayed', 'running', 'paused', 'failed')),
  -- A token exists exactly while the task runs: this is what makes it a fence.
  constraint task_token_while_running check ((state = 'running') = (lease_token is not null)),
  constraint task_attempts_in_bounds check (attempt_count between 0 and max_attempts),
  -- The limits of kernel/task.py. A check is made again only where its column is written.
  constraint task_attempts_limit check (max_attempts <= 1000000),
  constraint task_timeout_limit check (timeout_ms <= 2000000000),
  constraint task_priority_limit check (priority between -32768 and 32767),
  constraint task_kind_limit check (length(cast(kind as blob)) between 1 and 120),
  constraint task_queue_limit check (length(cast(queue as blob)) between 1 and 120),
  constraint task_group_limit check (length(cast(task_group as blob)) between 1 and 1536),
  constraint task_scope_limit check (length(cast(scope as blob)) between 1 and 1536),
  constraint task_trace_limit check (length(cast(trace_id as blob)) between 1 and 1536),
  constraint task_key_limit check (length(cast(idempotency_key as blob)) between 1 and 1536),
  constraint task_worker_limit check (length(cast(worker_id as blob)) between 1 and 1536),
  constraint task_payload_limit check (length(cast(payload as blob)) <= 1048576)
) strict;

create index redrive_task_ready on redrive_task (queue, lane, priority, position) where state = 'queued';
create index redrive_task_due on redrive_task (next_attempt_at) where state = 'delayed';
create index redrive_task_lease on redrive_task (lease_expires_at) where state = 'running';
create index redrive_task_failed on redrive_task (id) where state = 'failed';
create index redrive_task_failed_seq on redrive_task (failed_seq) where state = 'failed';
create index redrive_task_failed_at on redrive_task (failed_at) where state = 'failed';
create index redrive_task_failed_kind on redrive_task (kind, failed_seq) where state = 'failed';
create index redrive_task_failed_code on redrive_task (error_code, failed_seq) where state = 'failed';
create index redrive_task_failed_fingerprint on redrive_task (error_fingerprint, failed_seq) where state = 'failed';
create index redrive_task_failed_scope on redrive_task (scope, failed_seq) where state = 'failed' and scope is not null;
create index redrive_task_failed_queue on redrive_task (queue, failed_seq) where state = 'failed';
create index redrive_task_failed_group on redrive_task (task_group, failed_seq) where state = 'failed' and task_group is not null;
create index redrive_task_failed_bulk on redrive_task (last_replayed_bulk_id, failed_seq)
  where state = 'failed' and last_replayed_bulk_id is not null;
create index redrive_task_paused_group on redrive_task (task_group, id) where state = 'paused';
create index redrive_task_cancel on redrive_task (worker_id) where cancel_requested_at is not null;
create index redrive_task_scope on redrive_task (scope, id) where scope is not null;
create index redrive_task_trace on redrive_task (trace_id, id) where trace_id is not null;
create index redrive_task_feature on redrive_task (feature) where feature is not null and state <> 'failed';
-- Members of a join are listed by state, and its failures retried in the order in which they came. Only rows with a join are in these
-- indexes: others pay nothing.
create index redrive_task_members on redrive_task (join_id, state, id) where join_id is not null;
create index redrive_task_failed_join on redrive_task (join_id, failed_seq) where state = 'failed' and join_id is not null;
-- Tasks of a retry, by state; those that were never retried are not in it.
create index redrive_task_retried on redrive_task (last_replayed_bulk_id, state, id) where last_replayed_bulk_id is not null;

-- Completed and cancelled tasks. Slim: no payload for completed ones; cancelled ones keep theirs, they can be retried.
create table redrive_history (
  id               text not null,
  finished_at      integer not null,
  created_at       integer not null,
  last_attempt_at  integer,
  expires_at       integer,                        -- where its kind says how long, else its age decides
  erased_at        integer,                        -- what it carried is gone; it cannot be retried
  lease_token      text,
  execution_ms     real,
  state            text not null,
  attempt_count    integer not null,
  max_attempts     integer not null,
  replay_count     integer not null,
  timeout_ms       integer,
  priority         integer not null,
  kind             text not null,
  queue            text not null,
  task_group       text,
  scope            text,
  trace_id         text,
  idempotency_key  text,
  worker_id        text,
  cancel_reason    text,
  payload          text,
  result           text,
  feature          text,
  facts            text,
  join_id          text,
  trace_parent     text,                           -- of cancelled tasks, which may come back
  -- What was forgotten or purged is told apart from what somebody cancelled, and counted: a retry by a filter leaves it alone.
  forgotten        integer not null default 0
) strict;
create index redrive_history_id on redrive_history (id);
create index redrive_history_finished on redrive_history (finished_at);
-- Partial: tasks without a scope, a trace or a keep of their own pay nothing for them.
create index redrive_history_expires on redrive_history (expires_at) where expires_at is not null;
create index redrive_history_scope on redrive_history (scope, id) where scope is not null;
create index redrive_history_trace on redrive_history (trace_id, id) where trace_id is not null;
-- What was given up, and can be retried; completed tasks are not in it.
create index redrive_history_cancelled on redrive_history (kind, id) where state = 'cancelled';
create index redrive_history_members on redrive_history (join_id, state, id) where join_id is not null;

-- Tasks that belong together: how many have ended, and what is enqueued when all have.
create table redrive_join (
  id            text primary key not null,
  created_at    integer not null,
  ended_at      integer,                           -- when all had ended for the first time
  succeeded_at  integer,                           -- when all had completed
  total         integer not null default 0,
  completed     integer not null default 0,
  failed        integer not null default 0,
  cancelled     integer not null default 0,
  is_open       integer not null default 0,        -- members may still come
  on_complete   text,                              -- JSON: the task to enqueue
  on_success    text,
  fault         text                               -- why it could not be
) strict;
create index redrive_join_waiting on redrive_join (created_at) where ended_at is null;
create index redrive_join_fault on redrive_join (id) where fault is not null;
create index redrive_join_complete_scope on redrive_join (on_complete ->> 'scope') where on_complete ->> 'scope' is not null;
create index redrive_join_success_scope on redrive_join (on_success ->> 'scope') where on_success ->> 'scope' is not null;
create index redrive_join_outer on redrive_join (on_complete ->> 'join') where on_complete ->> 'join' is not null;
create index redrive_join_created on redrive_join (created_at, id);

-- Every failed attempt.
create table redrive_attempt (
  seq            integer primary key autoincrement,
  task_id        text not null,
  at             integer not null,
  lease_token    text,
  execution_ms   real,
  attempt        integer not null,
  replay         integer not null,
  code           text not null,
  reason         text not null,
  failure_type   text not null,
  message        text not null,
  stack          text,
  fingerprint    text not null,
  worker_id      text,
  error_summary  text,
  -- Whom a failed attempt called, and which build of the application ran it.
  peer           text,
  build          text
) strict;
create index redrive_attempt_task on redrive_attempt (task_id, seq);
create index redrive_attempt_at on redrive_attempt (at, seq);

-- One record for each terminal failure; it survives the task's later retry.
create table redrive_dead_letter (
  seq                integer primary key autoincrement,
  id                 text not null unique,
  task_id            text not null,
  dead_at            integer not null,
  attempt_count      integer not null,
  max_attempts       integer not null,
  replay_count       integer not null,
  reason             text not null,
  kind               text not null,
  queue              text not null,
  task_group         text,
  scope              text,
  trace_id           text,
  payload            text,
  error_code         text not null,
  error_reason       text not null,
  failure_type       text not null,
  error_message      text not null,
  error_fingerprint  text not null,
  error_summary      text
) strict;
create index redrive_dead_letter_task on redrive_dead_letter (task_id);
create index redrive_dead_letter_kind on redrive_dead_letter (kind, seq);
create index redrive_dead_letter_reason on redrive_dead_letter (reason, seq);
create index redrive_dead_letter_code on redrive_dead_letter (error_code, seq);
create index redrive_dead_letter_fingerprint on redrive_dead_letter (error_fingerprint, seq);
create index redrive_dead_letter_scope on redrive_dead_letter (scope, seq) where scope is not null;
create index redrive_dead_letter_trace on redrive_dead_letter (trace_id, seq) where trace_id is not null;

-- Failures by cause.
create table redrive_failure_group (
  fingerprint    text primary key not null,
  n              integer not null,
  code           text not null,
  reason         text not null,
  failure_type   text not null,
  message        text not null,
  kind           text not null,
  sample_task    text not null,
  sample_scope   text,                             -- so that its message is found when nothing else is left of the task
  first_seen     integer not null,
  last_seen      integer not null,
  failing        integer not null default 0,       -- tasks that are failed by it now
  error_summary  text,                             -- of the sample task, as is the message
  -- Causes that a newer algorithm takes for one go on under the name that the first of them had; this is its newest name.
  alias          text
) strict;
create index redrive_failure_group_seen on redrive_failure_group (last_seen, fingerprint);
create index redrive_failure_group_failing on redrive_failure_group (last_seen, fingerprint) where failing > 0;
create index redrive_failure_group_quiet on redrive_failure_group (last_seen, fingerprint) where failing = 0;
create index redrive_failure_group_alias on redrive_failure_group (alias) where alias is not null;
-- How it went, hour by hour.
create table redrive_failure_hour (
  fingerprint   text not null,
  hour          integer not null,
  n             integer not null,
  primary key (fingerprint, hour)
) strict, without rowid;
create index redrive_failure_hour_hour on redrive_failure_hour (hour);

-- Exact totals, changed in the same transaction as the tasks: there is one writer, so nobody waits for a counter row.
create table redrive_total (
  queue         text not null,
  kind          text not null,
  queued        integer not null default 0,
  delayed       integer not null default 0,
  running       integer not null default 0,
  paused        integer not null default 0,
  failed        integer not null default 0,
  completed     integer not null default 0,
  cancelled     integer not null default 0,
  dead_letters  integer not null default 0,        -- records of terminal failures, not tasks
  forgotten     integer not null default 0,
  primary key (queue, kind)
) strict, without rowid;
-- Whoever writes or removes dead letters changes their total with it.
create trigger redrive_dead_letter_made after insert on redrive_dead_letter begin
  insert into redrive_total (queue, kind, dead_letters) values (new.queue, new.kind, 1)
  on conflict (queue, kind) do update set dead_letters = dead_letters + 1;
end;
create trigger redrive_dead_letter_gone after delete on redrive_dead_letter begin
  update redrive_total set dead_letters = dead_letters - 1 where queue = old.queue and kind = old.kind;
end;

-- Tasks that are failed now, by everything they are filtered by; exact, as above.
create table redrive_failed_total (
  kind          text not null,
  queue         text not null,
  task_group    text not null,                     -- '' = none
  error_code    text not null,
  error_reason  text not null,
  failure_type  text not null,
  dead_reason   text not null,
  fingerprint   text not null,
  n             integer not null,
  primary key (fingerprint, kind, queue, task_group, error_code, error_reason, failure_type, dead_reason)
) strict, without rowid;

-- The same by each of them alone, so that neither a statistic nor a count reads as many rows as there are causes.
create table redrive_failed_sum (
  dimension  text not null,                        -- total, kind, queue, group, code, type, reason (dead), cause
  value      text not null,
  n          integer not null,
  primary key (dimension, value)
) strict, without rowid;
create index redrive_failed_sum_largest on redrive_failed_sum (dimension, n desc, value);

-- What became of the tasks of each bulk retry, changed in the same transaction as they.
create table redrive_retry_total (
  bulk_id   text not null,
  outcome   text not null,                         -- retried, running, completed, failed, cancelled, again (by another retry)
  cause     text not null,                         -- of what failed: its fingerprint
  n         integer not null,
  begun_at  integer not null,
  primary key (bulk_id, outcome, cause)
) strict, without rowid;
create index redrive_retry_total_begun on redrive_retry_total (begun_at);

-- A key names one task, also after that task is finished.
create table redrive_idempotency_key (
  key         text primary key not null,
  task_id     text not null,
  digest      text not null,
  created_at  integer not null,
  -- The same work in another queue is other work; null: a key from before, of which the queue was not written.
  queue       text
) strict;
create index redrive_idempotency_key_created on redrive_idempotency_key (created_at, key);

-- Kinds with a lane of their own: limited, paused at some time, bulk, or set aside for workers that handle them.
-- "running" counts only while "concurrency" is set.
create table redrive_kind (
  kind         text primary key not null,
  concurrency  integer check (concurrency > 0),
  rate_ms      integer check (rate_ms > 0),
  running      integer not null default 0,
  next_at      integer,
  actor        text,
  circuit      text                                -- the open circuit that the kind waits for
) strict, without rowid;

-- Circuits: kinds whose other side is down are not claimed, but for one task at a time that tries whether it is back.
-- "kinds" (a JSON array) are those that share it. While it is "open", nothing of them is claimed before "until"; then one
-- task is, the probe, and the next one only when that one has ended.
create table redrive_circuit (
  name           text primary key not null,
  version        integer not null,
  kinds          text not null,
  open           integer not null,
  since          integer not null,                 -- open or closed
  until          integer,
  reason         text,                             -- why it opened, or why the last probe failed
  actor          text,                             -- the worker or person that opened or closed it
  failed_probes  integer not null default 0,       -- since it opened
  opened         integer not null default 0,       -- how many times
  probe          text,                             -- the task that tries or tried last, and the token of its lease
  token          text
) strict, without rowid;

create table redrive_hold (
  target  text not null check (target in ('queue', 'kind', 'group', 'schedule')),
  name    text not null,
  actor   text not null,
  reason  text,
  at      integer not null,
  primary key (target, name)
) strict, without rowid;

-- Groups whose hold was lifted and whose tasks go back to their queues piece by piece.
create table redrive_resuming (
  task_group  text primary key
) strict, without rowid;

create table redrive_schedule (
  name          text primary key not null,
  owner         text not null,
  kind          text not null,
  cron          text not null,
  timezone      text not null,
  missed        text not null,
  queue         text not null,
  payload       text,
  priority      integer not null,
  max_attempts  integer not null,
  next_at       integer not null,
  last_at       integer
) strict;

create table redrive_worker (
  id             text primary key not null,
  host           text not null,
  pid            integer not null,
  queues         text not null,                    -- a JSON array
  concurrency    integer not null,
  running        integer not null,
  version        text not null,
  started_at     integer not null,
  seen_at        integer not null,
  stopping       integer not null,
  beat_ms        integer not null,
  sheet_id       text,                             -- the last sheet of counts that was taken from it
  -- Workers beat apart from what they run, and those that fall silent are told from those that only rest.
  beats_ms       integer,                          -- how often it beats, apart from its loop; null: only with its ticks
  beating_since  integer,                          -- no beat of its own has come late since then
  dead_at        integer,                          -- when others declared it dead; its next beat takes that back
  stalled_ms     integer not null default 0,       -- how long its event loop had not answered when it beat last
  drain_at       integer,                          -- when somebody asked it to end
  drain_by       text,
  drain_reason   text,
  -- Workers say which process they are, so that one of the same machine can see that another is gone, and judges of a fleet of which
  -- more are missed than heard note that nobody is to be blamed.
  machine        text,                             -- where its pid means the same process: boot and namespaces; null: not known
  birth          integer,                          -- when its process began, by that machine: pids are used again
  cut_off_at     integer,                          -- leases of it that ended at this moment did so while more were missed than heard: it may have been the network
  build          text
) strict;

-- What workers have counted, as they sent it with their heartbeats, until "series" adds it up.
create table redrive_series_sheet (
  seq       integer primary key,
  at        integer not null,
  document  text not null                          -- JSON: a list of queue, kind and counts
) strict;
-- The product's own time series: what was counted in a minute, an hour, a day. Written by "series" alone.
create table redrive_series (
  resolution  text not null,                       -- minute, hour, day
  at          integer not null,                    -- when it begins
  queue       text not null,                       -- '' = everything
  kind        text not null,                       -- '' = all of the queue
  completed   integer not null,                    -- these two of the document, for reads of many kinds
  failed      integer not null,
  document    text not null,                       -- redrive.kernel.series.Tally
  primary key (resolution, at, queue, kind)
) strict, without rowid;
-- A chart reads the rows of one kind or queue, whatever the number of others.
create index redrive_series_of on redrive_series (resolution, kind, queue, at);

-- Housekeeping that the fleet does once per interval, whoever comes first.
create table redrive_duty (
  name     text primary key not null,
  next_at  integer not null
) strict;

-- How far the machine's clock is from its time since boot, by which a clock that was set is noticed: one row. Nothing is
-- removed before held_until.
create table redrive_clock (
  boot        text primary key not null,
  apart       integer not null,
  held_until  integer not null
) strict;

-- How far pruning has looked: what it has to keep is not read again each minute, only in the pass of the next day.
create table redrive_pruned (
  name   text primary key,
  began  integer not null,
  at     integer not null default 0,
  tie    any not null default ''
) strict, without rowid;

create table redrive_audit (
  id        integer primary key autoincrement,
  at        integer not null,
  actor     text not null,
  action    text not null,
  reason    text,
  task_id   text,
  bulk_id   text,
  target    text,
  kind      text,                                  -- these three are the task's, or of a kind that was acted on
  scope     text,
  trace_id  text,
  salt      text default (lower(hex(randomblob(16)))), -- enters the digest of what may be erased
  erased    text,                                  -- that digest, once values and salt are gone
  before    text,
  after     text
) strict;
create index redrive_audit_task on redrive_audit (task_id, id) where task_id is not null;
create index redrive_audit_action on redrive_audit (action, id);
create index redrive_audit_actor on redrive_audit (actor, id);
create index redrive_audit_at on redrive_audit (at, id);
create index redrive_audit_bulk on redrive_audit (bulk_id, id) where bulk_id is not null;
create index redrive_audit_kind on redrive_audit (kind, id) where kind is not null;
create index redrive_audit_scope on redrive_audit (scope, id) where scope is not null;
create index redrive_audit_trace on redrive_audit (trace_id, id) where trace_id is not null;
-- Audit rows about something that is no task are found by it: a batch, an alert, an account.
create index redrive_audit_target on redrive_audit (target, id) where target is not null;

-- Small documents: plans, bulk operations, approvals, tokens, notes. Changed only by whoever saw the last version.
create table redrive_record (
  seq         integer primary key autoincrement,
  collection  text not null,
  id          text not null,
  state       text not null,
  version     integer not null,
  created_at  integer not null,
  updated_at  integer not null,
  expires_at  integer,
  body        text not null,
  unique (collection, id)
) strict;
create index redrive_record_newest on redrive_record (collection, seq);
create index redrive_record_state on redrive_record (collection, state, seq);
create index redrive_record_updated on redrive_record (collection, updated_at);
create index redrive_record_expires on redrive_record (expires_at) where expires_at is not null;

-- Money. Accounts named "system:..." are the other side of the world and may go below zero; all others may not.
create table redrive_account (
  name     text primary key not null,
  balance  integer not null default 0,
  constraint account_never_negative check (balance >= 0 or name glob 'system:*')
) strict;
create table redrive_posting (
  key   text primary key not null,
  at    integer not null,
  note  text
) strict;

-- Tasks that are failed now, with why.
create view redrive_v_failures as
  select t.id, t.kind, t.queue, t.task_group, t.scope, t.trace_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.failed_at / 1e6, 'unixepoch') as failed_at, t.attempt_count, t.max_attempts,
    t.error_code, t.error_reason, t.failure_type, t.error_message, t.error_stack, t.error_fingerprint, t.replay_count, t.payload
  from redrive_task t where t.state = 'failed';

-- Terminal failures, each as it was when it happened; the task may have been retried since.
create view redrive_v_dead_letters as
  select d.id, d.task_id, strftime('%Y-%m-%dT%H:%M:%fZ', d.dead_at / 1e6, 'unixepoch') as dead_at, d.reason, d.kind, d.queue,
    d.task_group, d.scope, d.trace_id, d.attempt_count, d.max_attempts, d.replay_count, d.error_code, d.error_reason,
    d.failure_type, d.error_message, d.error_fingerprint, d.payload
  from redrive_dead_letter d;

-- Who did what, when and why.
create view redrive_v_audit as
  select a.id, strftime('%Y-%m-%dT%H:%M:%fZ', a.at / 1e6, 'unixepoch') as at, a.actor, a.action, a.reason, a.task_id,
    a.bulk_id as batch_id, a.target, a.kind, a.scope, a.trace_id, a.before, a.after
  from redrive_audit a;

-- Tasks that are failed now, by everything they are filtered by.
create view redrive_v_failed_counts as
  select x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.fingerprint, x.n
  from redrive_failed_total x;

-- The product's own time series, by minute, hour and day; '' stands for all queues and kinds. Half a minute late.
create view redrive_v_series as
  select s.resolution, strftime('%Y-%m-%dT%H:%M:%fZ', s.at / 1e6, 'unixepoch') as at, s.queue, s.kind, s.completed, s.failed,
    s.document
  from redrive_series s;
--MARK redrive_entry
create table redrive_entry (
  id       integer primary key not null,
  posting  text not null references redrive_posting,
  account  text not null references redrive_account,
  amount   integer not null
) strict;
create index redrive_entry_account on redrive_entry (account);
create index redrive_entry_posting on redrive_entry (posting);
create view redrive_v_counts as
  select x.queue, x.kind, x.queued, x.delayed, x.running, x.paused, x.failed, x.completed, x.cancelled,
    x.dead_letters, x.forgotten
  from redrive_total x;
create view redrive_v_tasks as
  select t.id, t.state, t.kind, t.queue, t.task_group, t.scope, t.priority, t.attempt_count, t.max_attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.created_at / 1e6, 'unixepoch') as created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.next_attempt_at / 1e6, 'unixepoch') as next_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.last_attempt_at / 1e6, 'unixepoch') as last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.lease_expires_at / 1e6, 'unixepoch') as lease_expires_at, t.worker_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.failed_at / 1e6, 'unixepoch') as failed_at, null as finished_at,
    null as execution_ms, t.trace_id, t.idempotency_key, t.replay_count, t.error_code, t.error_message, t.payload,
    t.progress, null as result, null as forgotten,
    case t.state
      when 'queued' then (select h.target || ':' || h.name from redrive_hold h
        where (h.target, h.name) in (values ('queue', t.queue), ('kind', t.kind), ('group', t.task_group)) order by h.target desc limit 1)
      when 'paused' then t.paused_by
    end as paused_by
  from redrive_task t
  union all
  select h.id, h.state, h.kind, h.queue, h.task_group, h.scope, h.priority, h.attempt_count, h.max_attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.created_at / 1e6, 'unixepoch'), null,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.last_attempt_at / 1e6, 'unixepoch'), null, h.worker_id, null,
    strftime('%Y-%m-%dT%H:%M:%fZ', h.finished_at / 1e6, 'unixepoch'), h.execution_ms, h.trace_id, h.idempotency_key,
    h.replay_count, null, h.cancel_reason, h.payload, null, h.result,
    case when h.state = 'cancelled' then h.forgotten end, null
  from redrive_history h;

-- Names that producers use are bounded, unless an application has declared them: see "admit_names".
create table redrive_used_name (
  queue    text not null,
  kind     text not null,
  tasks    integer not null default 0,             -- ever, at the last look
  used_at  integer not null,
  primary key (queue, kind)
) without rowid;
create table redrive_known_name (
  what          text not null,                     -- queue, kind
  name          text not null,
  max_attempts  integer,                           -- of a kind: how often its handler's application says that it is tried
  primary key (what, name)
) without rowid;
create table redrive_name_bound (
  one   integer primary key check (one = 1),
  most  integer not null
);
insert into redrive_known_name (what, name) values ('queue', 'default'), ('kind', 'SYSTEM_HEALTH_CHECK'), ('kind', 'SYSTEM_FAIL_ALWAYS');
-- Totals of cancelled tasks lapse with their name: of those that are retried afterwards nothing is taken away.
create trigger redrive_total_began after insert on redrive_total when new.cancelled < 0 or new.forgotten < 0 begin
  update redrive_total set cancelled = max(cancelled, 0), forgotten = max(forgotten, 0) where queue = new.queue and kind = new.kind;
end;
