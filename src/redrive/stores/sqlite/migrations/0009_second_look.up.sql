-- What was forgotten or purged is told apart from what somebody cancelled, and counted: a retry by a filter leaves it alone.
alter table redrive_history add column forgotten integer not null default 0;
alter table redrive_total add column forgotten integer not null default 0;
drop view redrive_v_counts;
create view redrive_v_counts as
  select x.queue, x.kind, x.queued, x.delayed, x.running, x.paused, x.failed, x.completed, x.cancelled,
    x.dead_letters, x.forgotten
  from redrive_total x;
-- The view of tasks tells them apart, too, and says what holds back a task that waits: rows of a paused queue or kind stay queued.
drop view redrive_v_tasks;
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
-- Of what was cancelled before, the audit log knows.
update redrive_history set forgotten = 1 where state = 'cancelled' and (
  select a.action in ('TASK_FORGET', 'TASK_FORGET_BATCH_ITEM', 'TASK_PURGE_BATCH_ITEM') from redrive_audit a
  where a.task_id = redrive_history.id and a.action in ('TASK_FORGET', 'TASK_FORGET_BATCH_ITEM', 'TASK_PURGE_BATCH_ITEM',
    'TASK_CANCEL', 'TASK_CANCEL_REQUEST', 'TASK_CANCEL_BATCH_ITEM')
  order by a.id desc limit 1);
update redrive_total set forgotten = (
  select count(*) from redrive_history h
  where h.state = 'cancelled' and h.forgotten and h.queue = redrive_total.queue and h.kind = redrive_total.kind)
where cancelled > 0;

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
-- Tasks of a retry, by state; those that were never retried are not in it.
create index redrive_task_retried on redrive_task (last_replayed_bulk_id, state, id) where last_replayed_bulk_id is not null;

-- Workers say which process they are, so that one of the same machine can see that another is gone, and judges of a fleet of which
-- more are missed than heard note that nobody is to be blamed.
alter table redrive_worker add column machine text;           -- where its pid means the same process: boot and namespaces; null: not known
alter table redrive_worker add column birth integer;          -- when its process began, by that machine: pids are used again
alter table redrive_worker add column cut_off_at integer;     -- leases of it that ended at this moment did so while more were missed than heard: it may have been the network
alter table redrive_task add column cut_offs integer not null default 0; -- how often in a row its worker fell silent so

-- Causes that a newer algorithm takes for one go on under the name that the first of them had; this is its newest name.
alter table redrive_failure_group add column alias text;
create index redrive_failure_group_alias on redrive_failure_group (alias) where alias is not null;
-- Whom a failed attempt called, and which build of the application ran it.
alter table redrive_attempt add column peer text;
alter table redrive_attempt add column build text;
alter table redrive_worker add column build text;

-- The same work in another queue is other work; null: a key from before, of which the queue was not written.
alter table redrive_idempotency_key add column queue text;
-- Names that producers use are bounded, unless an application has declared them: see "admit_names".
create table redrive_used_name (
  queue    text not null,
  kind     text not null,
  tasks    integer not null default 0,  -- ever, at the last look
  used_at  integer not null,
  primary key (queue, kind)
) without rowid;
create table redrive_known_name (
  what  text not null,  -- queue, kind
  name  text not null,
  max_attempts integer,  -- of a kind: how often its handler's application says that it is tried
  primary key (what, name)
) without rowid;
create table redrive_name_bound (
  one   integer primary key check (one = 1),
  most  integer not null
);
insert into redrive_known_name (what, name) values ('queue', 'default'), ('kind', 'SYSTEM_HEALTH_CHECK'), ('kind', 'SYSTEM_FAIL_ALWAYS');
insert into redrive_used_name (queue, kind, used_at) select queue, kind, unixepoch() * 1000000 from redrive_total;
-- Totals of cancelled tasks lapse with their name: of those that are retried afterwards nothing is taken away.
create trigger redrive_total_began after insert on redrive_total when new.cancelled < 0 or new.forgotten < 0 begin
  update redrive_total set cancelled = max(cancelled, 0), forgotten = max(forgotten, 0) where queue = new.queue and kind = new.kind;
end;
-- That there was a token is known for good: without any, the API takes who calls from this machine for an administrator.
insert into redrive_record (collection, id, state, version, created_at, updated_at, body)
select 'access', 'tokens', '', 1, unixepoch() * 1000000, unixepoch() * 1000000, '{}'
where exists (select 1 from redrive_record where collection = 'token');
