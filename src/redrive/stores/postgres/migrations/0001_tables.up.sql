-- Tables of redrive. Everything lives in the schema "redrive"; all times are the server's.

create schema if not exists redrive;

create type redrive.state as enum ('queued', 'delayed', 'running', 'paused', 'failed', 'completed', 'cancelled');

-- Where a row stands in its queue. Taken anew each time a row becomes ready, so that rows always join at the tail.
-- cache 1: a larger cache would let one session's rows overtake another's.
create sequence redrive.position cache 1;

-- The order in which tasks failed: a set of failed tasks is "up to here", and stays the same while others fail.
create sequence redrive.failed_seq cache 1;

-- Locks, taken on empty tables as a whole. Only roles that were granted redrive's functions can take them; the number of an
-- advisory lock can be taken, and kept, by any role of the database. Weak and strong modes write nothing.
create table redrive.move_lock ();       -- claims and settles share it; whoever changes limits and holds has it alone
create table redrive.fold_lock ();       -- one folds deltas at a time
create table redrive.series_lock ();     -- one adds to the series at a time
create table redrive.partition_lock ();  -- one makes and drops partitions at a time

-- The limits of kernel/task.py, as far as they protect what is stored, for every way in: enqueue, COPY, a row written by
-- hand. Domains, because they check what is assigned; a constraint of the table would be prepared and evaluated again with
-- every claim and settle, and would read the payload each time. Bytes, because an index refuses rows of more than 2,700.
-- Characters are the business of enqueue, which also says what is wrong.
create function redrive.check_payload(p_value jsonb) returns boolean
language plpgsql strict set search_path = pg_catalog, pg_temp as $$
declare
  v_text bytea := convert_to(p_value::text, getdatabaseencoding());
  v_place integer := 4300;
  v_numbers boolean := false;
  v_left bytea;
  v_right bytea;
begin
  if length(v_text) > 1048576 then
    raise exception 'payload is % bytes, over the limit of 1,048,576', length(v_text) using
      errcode = 'invalid_parameter_value', hint = 'store large data elsewhere and pass a reference to it';
  end if;
  if jsonb_path_exists(p_value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")') then
    raise exception 'payload is nested more than 100 levels deep' using
      errcode = 'invalid_parameter_value', hint = 'nest it less deeply, or store it elsewhere and pass a reference to it';
  end if;
  -- More than 4,300 digits in a row cover one of each 4,300 bytes: only there is looked. Where a run is that long it may be one of
  -- a text, so that what is looked at from then on, from the beginning, is the document without its texts.
  while v_place < length(v_text) loop
    if get_byte(v_text, v_place) between 48 and 57 then
      v_left := substring(v_text from v_place - 4298 for 4300);
      v_right := substring(v_text from v_place + 2 for 4300);
      if length(v_left) - length(rtrim(v_left, '0123456789')) + length(v_right) - length(ltrim(v_right, '0123456789')) > 4300 then
        if v_numbers then
          raise exception 'payload has a number of more than 4,300 digits' using
            errcode = 'invalid_parameter_value', hint = 'most programs cannot read it; pass it as text';
        end if;
        v_text := convert_to(regexp_replace(p_value::text, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g'), getdatabaseencoding());
        v_numbers := true;
        v_place := 0;
      end if;
    end if;
    v_place := v_place + 4300;
  end loop;
  return true;
end $$;
create domain redrive.name as text constraint name_of_1_to_120_bytes check (octet_length(value) between 1 and 120);
create domain redrive.label as text constraint label_of_1_to_1536_bytes check (octet_length(value) between 1 and 1536);
-- Its size as PostgreSQL writes it: numbers are written out in full there, and 1e131071, eight bytes on the way in, would be
-- 131 kB for everybody who reads it. The function is called for what is longer, to look closer, and for what is refused;
-- where that is likely, it is called at once, because to write the text is what costs most. A hundred levels are two
-- hundred brackets: what is shorter has fewer.
create domain redrive.payload as jsonb check (
  pg_column_size(value) <= 2000 and (octet_length(value::text) < 200 or octet_length(value::text) <= 4300
    and not jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")'))
  or redrive.check_payload(value));
-- Domains, because checks of a table are parsed again for each statement that writes to it; those of a type are not.
create domain redrive.attempts as integer constraint attempts_of_1_to_1000000 check (value between 1 and 1000000);
create domain redrive.timeout_ms as integer
  constraint timeout_of_1_to_2000000000_ms check (value between 1 and 2000000000);
-- Producers in SQL say "traceparent". Its type tells the form of redrive.enqueue that takes it from the one that does not.
create domain redrive.traceparent as text;

-- Live tasks: queued, delayed, running, paused, failed. Wide columns last, fixed-width ones first.
create table redrive.task (
  id                     uuid primary key,
  created_at             timestamptz not null,
  position               bigint not null default 0,
  run_at                 timestamptz,
  next_attempt_at        timestamptz,
  last_attempt_at        timestamptz,
  lease_token            uuid,
  settled_token          uuid,                     -- whose settlement last sent it back to wait
  lease_expires_at       timestamptz,
  cancel_requested_at    timestamptz,
  failed_at              timestamptz,
  failed_seq             bigint,
  last_replayed_at       timestamptz,
  state                  redrive.state not null,
  attempt_count          integer not null default 0,
  max_attempts           redrive.attempts not null,
  replay_count           integer not null default 0,
  timeout_ms             redrive.timeout_ms,
  priority               smallint not null default 0,
  kind                   redrive.name not null,
  queue                  redrive.name not null,
  lane                   text not null default '', -- '' = the queue's open lane, else the kind whose own lane it is in
  task_group             redrive.label,
  scope                  redrive.label,
  trace_id               redrive.label,
  idempotency_key        redrive.label,
  worker_id              text,
  paused_by              text,
  payload                redrive.payload,
  progress               jsonb,
  memo                   jsonb,                    -- what a snoozed handler wants back
  error_code             text,
  error_reason           text,
  failure_type           text,
  error_message          text,
  error_stack            text,
  error_fingerprint      text,
  error_summary          jsonb,                    -- what of it may be shown to everybody
  dead_reason            text,
  last_replayed_by       text,
  last_replayed_reason   text,
  last_replayed_bulk_id  text,                     -- the bulk operation that retried it last
  feature                text,                     -- who reacts to its moves
  facts                  jsonb,                    -- what the feature wants to know then
  join_id                uuid,                     -- the join that it is a member of
  deaths                 smallint not null default 0, -- workers that were lost while they had it
  apart                  boolean not null default false, -- its worker has not begun it yet: it waits to be alone
  -- The context of whoever enqueued a task: a W3C traceparent, with its tracestate behind a space. Only of those that gave one.
  trace_parent           text,
  cut_offs               integer not null default 0, -- how often in a row its worker fell silent so
  -- A token exists exactly while the task runs: this is what makes it a fence.
  constraint task_token_while_running check ((state = 'running') = (lease_token is not null)),
  constraint task_attempts_in_bounds check (attempt_count between 0 and max_attempts)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index task_ready on redrive.task (queue, lane, priority, position) where state = 'queued';
create index task_due on redrive.task (queue, next_attempt_at) where state = 'delayed';
create index task_lease on redrive.task (lease_expires_at) where state = 'running';
create index task_failed on redrive.task (id) where state = 'failed';
create index task_failed_seq on redrive.task (failed_seq) where state = 'failed';
create index task_failed_at on redrive.task (failed_at) where state = 'failed';
create index task_failed_kind on redrive.task (kind, failed_seq) where state = 'failed';
create index task_failed_code on redrive.task (error_code, failed_seq) where state = 'failed';
create index task_failed_fingerprint on redrive.task (error_fingerprint, failed_seq) where state = 'failed';
create index task_failed_scope on redrive.task (scope, failed_seq) where state = 'failed' and scope is not null;
create index task_failed_queue on redrive.task (queue, failed_seq) where state = 'failed';
create index task_failed_group on redrive.task (task_group, failed_seq) where state = 'failed' and task_group is not null;
create index task_failed_bulk on redrive.task (last_replayed_bulk_id, failed_seq)
  where state = 'failed' and last_replayed_bulk_id is not null;
create index task_paused_group on redrive.task (task_group, id) where state = 'paused';
create index task_cancel on redrive.task (worker_id) where cancel_requested_at is not null;
create index task_scope on redrive.task (scope, id) where scope is not null;
create index task_trace on redrive.task (trace_id, id) where trace_id is not null;
create index task_feature on redrive.task (feature) where feature is not null and state <> 'failed';
-- Members of a join are listed by state, and its failures retried in the order in which they came. Only rows with a join are in these
-- indexes: others pay nothing.
create index task_members on redrive.task (join_id, state, id) where join_id is not null;
create index task_failed_join on redrive.task (join_id, failed_seq) where state = 'failed' and join_id is not null;
-- Tasks of a retry, by state; those that were never retried are not in it.
create index task_retried on redrive.task (last_replayed_bulk_id, state, id) where last_replayed_bulk_id is not null;

-- Completed and cancelled tasks, one partition a day, so that retention drops tables instead of deleting rows.
-- Slim: no payload for completed tasks; cancelled ones keep theirs because they can be retried.
create table redrive.history (
  id               uuid not null,
  finished_at      timestamptz not null,
  created_at       timestamptz not null,
  last_attempt_at  timestamptz,
  expires_at       timestamptz,                    -- where its kind says how long, else the partition's age decides
  erased_at        timestamptz,                    -- what it carried is gone; it cannot be retried
  lease_token      uuid,
  execution_ms     real,
  state            redrive.state not null,
  attempt_count    integer not null,
  max_attempts     integer not null,
  replay_count     integer not null,
  timeout_ms       integer,
  priority         smallint not null,
  kind             text not null,
  queue            text not null,
  task_group       text,
  scope            text,
  trace_id         text,
  idempotency_key  text,
  worker_id        text,
  cancel_reason    text,
  payload          jsonb,
  result           jsonb,
  feature          text,
  facts            jsonb,
  join_id          uuid,
  trace_parent     text,                           -- of cancelled tasks, which may come back
  -- What was forgotten or purged is told apart from what somebody cancelled, and counted: a retry by a filter leaves it alone.
  forgotten        boolean not null default false
) partition by range (finished_at);
create index history_id on redrive.history (id);
create index history_finished on redrive.history (finished_at);
-- Partial: tasks without a scope or a trace pay nothing for them.
create index history_scope on redrive.history (scope, id) where scope is not null;
create index history_trace on redrive.history (trace_id, id) where trace_id is not null;
-- Found without looking at the tasks of other kinds, which pay nothing for it.
create index history_expires on redrive.history (expires_at) where expires_at is not null;
-- What was given up, and can be retried; completed tasks are not in it.
create index history_cancelled on redrive.history (kind, id) where state = 'cancelled';
create index history_members on redrive.history (join_id, state, id) where join_id is not null;
-- Catches rows of days whose partition could not be made in time; nothing is refused for want of a partition.
create table redrive.history_default partition of redrive.history default;

-- Tasks that belong together: how many have ended, and what is enqueued when all have.
create table redrive.task_join (
  id            uuid primary key,
  created_at    timestamptz not null,
  ended_at      timestamptz,                       -- when all had ended for the first time
  succeeded_at  timestamptz,                       -- when all had completed
  total         bigint not null default 0,
  completed     bigint not null default 0,
  failed        bigint not null default 0,
  cancelled     bigint not null default 0,
  is_open       boolean not null,                  -- members may still come
  on_complete   jsonb,                             -- the task to enqueue
  on_success    jsonb,
  fault         text                               -- why it could not be
);
create index task_join_waiting on redrive.task_join (created_at) where ended_at is null;
create index task_join_fault on redrive.task_join (id) where fault is not null;
create index task_join_complete_scope on redrive.task_join ((on_complete ->> 'scope')) where on_complete ->> 'scope' is not null;
create index task_join_success_scope on redrive.task_join ((on_success ->> 'scope')) where on_success ->> 'scope' is not null;
create index task_join_outer on redrive.task_join ((on_complete ->> 'join')) where on_complete ->> 'join' is not null;
create index task_join_created on redrive.task_join (created_at, id);

-- Arrivals at large joins, added up by "fold": the fleet does not queue up for one row.
create table redrive.join_delta (
  join_id    uuid not null,
  completed  bigint not null,
  failed     bigint not null,
  cancelled  bigint not null
);

-- Every failed attempt.
create table redrive.attempt (
  seq            bigint generated always as identity primary key,
  task_id        uuid not null,
  at             timestamptz not null,
  lease_token    uuid,
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
  error_summary  jsonb,
  -- Whom a failed attempt called, and which build of the application ran it.
  peer           text,
  build          text
);
create index attempt_task on redrive.attempt (task_id, seq);
create index attempt_at on redrive.attempt (at, seq);

-- One record for each terminal failure; it survives the task's later retry.
create table redrive.dead_letter (
  seq                bigint generated always as identity primary key,
  id                 uuid not null unique default gen_random_uuid(),
  task_id            uuid not null,
  dead_at            timestamptz not null,
  attempt_count      integer not null,
  max_attempts       integer not null,
  replay_count       integer not null,
  reason             text not null,
  kind               text not null,
  queue              text not null,
  task_group         text,
  scope              text,
  trace_id           text,
  payload            jsonb,
  error_code         text not null,
  error_reason       text not null,
  failure_type       text not null,
  error_message      text not null,
  error_fingerprint  text not null,
  error_summary      jsonb
);
create index dead_letter_task on redrive.dead_letter (task_id);
create index dead_letter_kind on redrive.dead_letter (kind, seq);
create index dead_letter_reason on redrive.dead_letter (reason, seq);
create index dead_letter_code on redrive.dead_letter (error_code, seq);
create index dead_letter_fingerprint on redrive.dead_letter (error_fingerprint, seq);
create index dead_letter_scope on redrive.dead_letter (scope, seq) where scope is not null;
create index dead_letter_trace on redrive.dead_letter (trace_id, seq) where trace_id is not null;

-- Failures by cause: appended by settles, folded into failure_group by maintenance.
create table redrive.failure_delta (
  fingerprint    text not null,
  n              bigint not null,
  code           text not null,
  reason         text not null,
  failure_type   text not null,
  message        text not null,
  kind           text not null,
  sample_task    uuid not null,
  sample_scope   text,
  at             timestamptz not null,
  error_summary  jsonb,
  alias          text
);
create table redrive.failure_group (
  fingerprint    text primary key,
  n              bigint not null,
  code           text not null,
  reason         text not null,
  failure_type   text not null,
  message        text not null,
  kind           text not null,
  sample_task    uuid not null,
  sample_scope   text,                             -- so that its message is found when nothing else is left of the task
  first_seen     timestamptz not null,
  last_seen      timestamptz not null,
  failing        bigint not null default 0,        -- tasks that are failed by it now, as of the last fold
  error_summary  jsonb,                            -- of the sample task, as is the message
  -- Causes that a newer algorithm takes for one go on under the name that the first of them had; this is its newest name.
  alias          text
);
create index failure_group_seen on redrive.failure_group (last_seen, fingerprint);
create index failure_group_failing on redrive.failure_group (last_seen, fingerprint) where failing > 0;
create index failure_group_quiet on redrive.failure_group (last_seen, fingerprint) where failing = 0;
create index failure_group_alias on redrive.failure_group (alias) where alias is not null;
-- How it went, hour by hour.
create table redrive.failure_hour (
  fingerprint   text not null,
  hour          timestamptz not null,
  n             bigint not null,
  primary key (fingerprint, hour)
);
create index failure_hour_hour on redrive.failure_hour (hour);

-- Exact totals: total + sum(total_delta). Deltas are appended with each commit, so that nobody waits for a counter row.
create table redrive.total_delta (
  queue         text not null,
  kind          text not null,
  queued        bigint not null default 0,
  delayed       bigint not null default 0,
  running       bigint not null default 0,
  paused        bigint not null default 0,
  failed        bigint not null default 0,
  completed     bigint not null default 0,
  cancelled     bigint not null default 0,
  dead_letters  bigint not null default 0,         -- records of terminal failures, not tasks
  forgotten     bigint not null default 0
);
create table redrive.total (
  queue         text not null,
  kind          text not null,
  queued        bigint not null default 0,
  delayed       bigint not null default 0,
  running       bigint not null default 0,
  paused        bigint not null default 0,
  failed        bigint not null default 0,
  completed     bigint not null default 0,
  cancelled     bigint not null default 0,
  dead_letters  bigint not null default 0,
  forgotten     bigint not null default 0,
  primary key (queue, kind)
);

-- Tasks that are failed now, by everything they are filtered by: total + deltas, as above.
create table redrive.failed_delta (
  kind          text not null,
  queue         text not null,
  task_group    text not null,                     -- '' = none
  error_code    text not null,
  error_reason  text not null,
  failure_type  text not null,
  dead_reason   text not null,
  fingerprint   text not null,
  n             bigint not null
);
create table redrive.failed_total (
  kind          text not null,
  queue         text not null,
  task_group    text not null,
  error_code    text not null,
  error_reason  text not null,
  failure_type  text not null,
  dead_reason   text not null,
  fingerprint   text not null,
  n             bigint not null,
  primary key (fingerprint, kind, queue, task_group, error_code, error_reason, failure_type, dead_reason)
);
-- The same by each of them alone, so that neither a statistic nor a count reads as many rows as there are causes.
create table redrive.failed_sum (
  dimension  text not null,                        -- total, kind, queue, group, code, type, reason (dead), cause
  value      text not null,
  n          bigint not null,
  primary key (dimension, value)
);
create index failed_sum_largest on redrive.failed_sum (dimension, n desc, value);
create index failed_sum_empty on redrive.failed_sum (dimension) where n = 0;
create index failed_total_empty on redrive.failed_total (fingerprint) where n = 0;

-- What became of the tasks of each bulk retry: appended by the moves of tasks that were retried, and folded with the totals.
create table redrive.retry_delta (
  bulk_id  text not null,
  outcome  text not null,                          -- retried, running, completed, failed, cancelled, again (by another retry)
  cause    text not null default '',               -- of what failed: its fingerprint
  n        bigint not null
);
create table redrive.retry_total (
  bulk_id   text not null,
  outcome   text not null,
  cause     text not null,
  n         bigint not null,
  begun_at  timestamptz not null default clock_timestamp(),
  primary key (bulk_id, outcome, cause)
);
create index retry_total_begun on redrive.retry_total (begun_at);

-- A key names one task, also after that task is finished.
create table redrive.idempotency_key (
  key         redrive.label primary key,
  task_id     uuid not null,
  digest      bytea not null,
  created_at  timestamptz not null,
  -- The same work in another queue is other work; null: a key from before, of which the queue was not written.
  queue       text
);
create index idempotency_key_created on redrive.idempotency_key (created_at, key);

-- Kinds with a lane of their own: limited, paused at some time, bulk, or set aside for workers that handle them.
-- "running" counts only while "concurrency" is set; it changes with the row locked.
create table redrive.kind (
  kind         text primary key,
  concurrency  integer check (concurrency > 0),
  rate_ms      integer check (rate_ms > 0),
  running      integer not null default 0,
  next_at      timestamptz,
  actor        text,
  circuit      text                                -- the open circuit that the kind waits for
) with (fillfactor = 50);

-- Circuits: kinds whose other side is down are not claimed, but for one task at a time that tries whether it is back.
-- "kinds" are those that share it. While it is "open", nothing of them is claimed before "until"; then one task is, the
-- probe, and the next one only when that one has ended.
create table redrive.circuit (
  name           text primary key,
  version        integer not null,
  kinds          text[] not null,
  open           boolean not null,
  since          timestamptz not null,             -- open or closed
  until          timestamptz,
  reason         text,                             -- why it opened, or why the last probe failed
  actor          text,                             -- the worker or person that opened or closed it
  failed_probes  integer not null default 0,       -- since it opened
  opened         bigint not null default 0,        -- how many times
  probe          uuid,                             -- the task that tries or tried last, and the token of its lease
  token          uuid
);

create table redrive.hold (
  target  text not null check (target in ('queue', 'kind', 'group', 'schedule')),
  name    text not null,
  actor   text not null,
  reason  text,
  at      timestamptz not null,
  primary key (target, name)
);

-- Groups whose hold was lifted and whose tasks go back to their queues piece by piece; those up to "after" are back.
create table redrive.resuming (
  task_group  text primary key,
  after       uuid
);

create table redrive.schedule (
  name          text primary key,
  owner         text not null,
  kind          text not null,
  cron          text not null,
  timezone      text not null,
  missed        text not null,
  queue         text not null,
  payload       jsonb,
  priority      smallint not null,
  max_attempts  integer not null,
  next_at       timestamptz not null,
  last_at       timestamptz
);

create table redrive.worker (
  id             text primary key,
  host           text not null,
  pid            integer not null,
  queues         text[] not null,
  concurrency    integer not null,
  running        integer not null,
  version        text not null,
  started_at     timestamptz not null,
  seen_at        timestamptz not null,
  stopping       boolean not null,
  beat_ms        integer not null,
  sheet_id       text,                             -- the last sheet of counts that was taken from it
  -- Workers beat apart from what they run, and those that fall silent are told from those that only rest.
  beats_ms       integer,                          -- how often it beats, apart from its loop; null: only with its ticks
  beating_since  timestamptz,                      -- no beat of its own has come late since then
  dead_at        timestamptz,                      -- when others declared it dead; its next beat takes that back
  stalled_ms     integer not null default 0,       -- how long its event loop had not answered when it beat last
  drain_at       timestamptz,                      -- when somebody asked it to end
  drain_by       text,
  drain_reason   text,
  -- Workers say which process they are, so that one of the same machine can see that another is gone, and judges of a fleet of which
  -- more are missed than heard note that nobody is to be blamed.
  machine        text,                             -- where its pid means the same process: boot and namespaces; null: not known
  birth          bigint,                           -- when its process began, by that machine: pids are used again
  cut_off_at     timestamptz,                      -- leases of it that ended at this moment did so while more were missed than heard: it may have been the network
  build          text
) with (fillfactor = 50);

-- What workers have counted, as they sent it with their heartbeats, until "series" adds it up.
create table redrive.series_sheet (
  at        timestamptz not null,
  document  text not null                          -- JSON: a list of queue, kind and counts
);
-- The product's own time series: what was counted in a minute, an hour, a day. Written by "series" alone.
create table redrive.series (
  resolution  text not null,                       -- minute, hour, day
  at          timestamptz not null,                -- when it begins
  queue       text not null,                       -- '' = everything
  kind        text not null,                       -- '' = all of the queue
  completed   bigint not null,                     -- these two of the document, for reads of many kinds
  failed      bigint not null,
  document    jsonb not null,                      -- redrive.kernel.series.Tally
  primary key (resolution, at, queue, kind)
) with (fillfactor = 70);
-- A chart reads the rows of one kind or queue, whatever the number of others.
create index series_of on redrive.series (resolution, kind, queue, at);

-- Housekeeping that the fleet does once per interval, whoever comes first.
create table redrive.duty (
  name     text primary key,
  next_at  timestamptz not null
) with (fillfactor = 50);

-- How far pruning has looked: what it has to keep is not read again each minute, only in the pass of the next day.
create table redrive.pruned (
  name   text primary key,
  began  timestamptz not null,
  at     timestamptz not null default '-infinity',
  seq    bigint not null default 0,
  key    text not null default ''
);

create table redrive.audit (
  id        bigint generated always as identity primary key,
  at        timestamptz not null,
  actor     text not null,
  action    text not null,
  reason    text,
  task_id   uuid,
  bulk_id   text,
  target    text,
  kind      text,                                  -- these three are the task's, or of a kind that was acted on
  scope     text,
  trace_id  text,
  salt      uuid default gen_random_uuid(),        -- enters the digest of what may be erased
  erased    text,                                  -- that digest, once values and salt are gone
  before    jsonb,
  after     jsonb
);
create index audit_task on redrive.audit (task_id, id) where task_id is not null;
create index audit_action on redrive.audit (action, id);
create index audit_actor on redrive.audit (actor, id);
create index audit_at on redrive.audit (at, id);
create index audit_bulk on redrive.audit (bulk_id, id) where bulk_id is not null;
create index audit_kind on redrive.audit (kind, id) where kind is not null;
create index audit_scope on redrive.audit (scope, id) where scope is not null;
create index audit_trace on redrive.audit (trace_id, id) where trace_id is not null;
-- Audit rows about something that is no task are found by it: a batch, an alert, an account.
create index audit_target on redrive.audit (target, id) where target is not null;

-- Small documents: plans, bulk operations, approvals, tokens, notes. Changed only by whoever saw the last version.
create table redrive.record (
  collection  text not null,
  id          text not null,
  state       text not null,
  version     bigint not null,
  seq         bigint generated always as identity,
  created_at  timestamptz not null,
  updated_at  timestamptz not null,
  expires_at  timestamptz,
  body        jsonb not null,
  primary key (collection, id)
);
create index record_newest on redrive.record (collection, seq);
create index record_state on redrive.record (collection, state, seq);
create index record_updated on redrive.record (collection, updated_at);
create index record_expires on redrive.record (expires_at) where expires_at is not null;

-- Money. Accounts named "system:..." are the other side of the world and may go below zero; all others may not.
create table redrive.account (
  name     text primary key,
  balance  bigint not null default 0,
  constraint account_never_negative check (balance >= 0 or name like 'system:%')
);
create table redrive.posting (
  key   text primary key,
  at    timestamptz not null,
  note  text
);
create table redrive.entry (
  posting  text not null references redrive.posting,
  account  text not null references redrive.account,
  amount   bigint not null,
  -- Entries have a place in the books. It is given under the lock of their accounts, so that in its order no account is ever below
  -- zero, and statements can be read in pages.
  id       bigint generated always as identity primary key
);
create index entry_posting on redrive.entry (posting);
create index entry_place on redrive.entry (account, id);

-- What a claim and a cycle return.
create type redrive.claimed as (
  id uuid, kind text, queue text, lane text, priority smallint, "position" bigint, payload jsonb, attempt_count integer,
  max_attempts integer, created_at timestamptz, task_group text, scope text, trace_id text, idempotency_key text,
  timeout_ms integer, memo jsonb, replay_count integer, feature text, join_id uuid,
  waited double precision
);
-- What kinds begin with that producers may not enqueue, by the feature that has them. Features write theirs with steps of their own.
create table redrive.reserved_kind (
  begins   text primary key,
  feature  text not null
);

-- Names that producers use are bounded, unless an application has declared them: see "admit_name".
create table redrive.used_name (
  queue        text not null,
  kind         text not null,
  declared     boolean not null,                   -- both, by some application: then it is not counted
  declared_by  text,                               -- not announced: the role that only enqueues, which says so; '': one that may announce it
  tasks        bigint not null default 0,          -- ever, at the last look
  used_at      timestamptz not null default clock_timestamp()
);
create index used_name_of on redrive.used_name (queue, kind);
create table redrive.name_allowance (              -- names that a role which only enqueues has declared, in ten parts: see "declare_name"
  role  text not null,
  part  integer not null,
  used  bigint not null default 0,
  primary key (role, part)
);
create table redrive.known_name (
  what          text not null check (what in ('queue', 'kind')),
  name          text not null,
  max_attempts  integer,                           -- of a kind: how often its handler's application says that it is tried
  primary key (what, name)
);
create table redrive.name_bound (
  one   boolean primary key default true check (one),
  most  bigint not null
);
create table redrive.name_lock ();       -- who begins to use a name shares it; whoever counts them has it alone
create sequence redrive.names;
insert into redrive.known_name (what, name) values ('queue', 'default'), ('kind', 'SYSTEM_HEALTH_CHECK'), ('kind', 'SYSTEM_FAIL_ALWAYS');

-- Nothing is open to everyone. Who may do what is in functions/grants.sql.
revoke all on all tables in schema redrive from public;
revoke all on all sequences in schema redrive from public;
revoke all on schema redrive from public;
