-- enqueue: many new tasks; answers those whose key already named a task
select id, existing, conflict
from redrive.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- enqueue_keyed: the same, and it waits only so long for a key that an open transaction holds
select e.id, e.existing, e.conflict
from (select set_config('lock_timeout', $15, true) as patience) s cross join lateral
  redrive.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 and s.patience is not null) e;

-- enqueue_declared: the same where the application declares kinds and queues of some, though no worker has said so yet
select id, existing, conflict
from redrive.enqueue_declared($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- enqueue_declared_keyed: the same, and it waits only so long for a key that an open transaction holds
select e.id, e.existing, e.conflict
from (select set_config('lock_timeout', $16, true) as patience) s cross join lateral
  redrive.enqueue_declared($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 and s.patience is not null, $15) e;

-- enqueue_one: one new task without a key, at a third of the price
select redrive.enqueue($1, $2, $3, $4, $5, make_interval(secs => $6), $7, make_interval(secs => $8), $9, $10, $11, null, $12);

-- add: the same for the fleet itself
select id, existing, conflict
from redrive.add($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- add_members: the same for tasks that a feature reacts to, or that are members of joins
select id, existing, conflict
from redrive.add($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);

-- add_members_keyed: the same, and it waits only so long for a key that an open transaction holds
select e.id, e.existing, e.conflict
from (select set_config('lock_timeout', $18, true) as patience) s cross join lateral
  redrive.add($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 and s.patience is not null, $15, $16, $17) e;

-- open_joins: new joins
select redrive.open_joins($1);

-- close_joins: no further members
select redrive.close_joins($1);

-- hold_joins: locks those that get members, in the order that all do
select redrive.hold_joins($1);

-- known_joins: which of these there are
select id from redrive.task_join where id = any ($1);

-- arrive: members of joins, after what features have added
select redrive.arrive_now($1);

-- joins: by their ids
select id, total, completed, failed, cancelled, is_open as open, created_at, ended_at, succeeded_at, fault
from redrive.task_join where id = any ($1);

-- lock_rows: rows that two statements are going to move, in one order for all
select 1 from redrive.task where id = any ($1) order by id for update;

-- landed: settlements that have landed before, under their token; $3: those that leave nothing
select u.id from unnest($1::uuid[], $2::uuid[], $3::boolean[]) u(id, token, traceless)
where redrive.landed(u.id, u.token) or (u.traceless and not redrive.is_kept(u.id));

-- cycle: settle and claim
select * from redrive.cycle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);

-- cycle_bounded: the same, and it waits only so long for a row that an open transaction holds
select c.* from (select set_config('lock_timeout', $20, true) as patience) s cross join lateral
  redrive.cycle($1, $2, $3, $4, $5, $6 and s.patience is not null, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) c;

-- patience: how long statements of this transaction wait for a row that another one holds
select set_config('lock_timeout', $1, true);

-- move: transitions decided by the state machine; $3: only in the transaction that began then
select moved, landed, members, instead from redrive.move($1, $2) where $3::timestamptz is null or pg_catalog.now() = $3;

-- suspects: rows that claims and ticks of these queues cannot work with
select id, why from redrive.suspects($1, $2);

-- mend: make a row one that can be moved; true if its feature is one of $2
select redrive.mend($1, $2);

-- complete: completions; $6: only in the transaction that began then
select redrive.complete($1, $2, $3, $4, $5) where $6::timestamptz is null or pg_catalog.now() = $6;

-- begun: which transaction this is; a later one on the same connection began later
select pg_catalog.now();

-- renew: heartbeat and progress
select renewed, missed from redrive.renew($1, $2, $3, $4, $5);

-- tick: a worker's beat
select * from redrive.tick($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
  $19);

-- beat: a worker's own beat, apart from its ticks
select silent_in, declared, drain, neighbours
from redrive.worker_beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- end_silent: leases of workers that are silent end
select worker, tasks, cut_off from redrive.judge_silent($1, $2, $3);

-- end_gone: leases of a worker whose process is gone end
select redrive.bury_process($1, $2, $3, $4, $5);

-- mark_waiting: these wait to be alone, or are begun
select redrive.set_apart($1, $2, $3);

-- drain: a worker is to end
select redrive.drain($1, $2, $3);

-- begin_series: nobody else adds to the series until the end of the transaction
select redrive.begin_series();

-- take_sheets: what workers have counted
select * from redrive.take_sheets($1);

-- series_names: pairs of queue and kind with rows of their own on this day
select queue, kind from redrive.series where resolution = 'day' and at = $1 and kind <> '';

-- series_stored: these rows as they are; one by one by their key, however many others there are
select u.resolution, u.at, u.queue, u.kind, s.document
from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[]) u(resolution, at, queue, kind) cross join lateral (
  select x.document from redrive.series x
  where x.resolution = u.resolution and x.at = u.at and x.queue = u.queue and x.kind = u.kind limit 1) s;

-- put_series: these rows as they are from now on
select redrive.put_series($1, $2, $3, $4, $5, $6, $7);

-- series: rows of everything and, if asked for, of a queue ($3), a kind ($4), or a kind in a queue
select at, queue, kind, document from redrive.series
where resolution = $1 and kind = '' and queue = '' and at >= $2
union all
select at, queue, kind, document from redrive.series
where resolution = $1 and kind = coalesce($4, '') and at >= $2 and queue <> ''
  and ($3::text is not null or $4::text is not null) and ($3::text is null or queue = $3);

-- ended: what ended in each minute, by queue and kind
select at, queue, kind, completed, failed from redrive.series
where resolution = 'minute' and at >= $1 and kind <> '' and (completed > 0 or failed > 0);

-- sheets: what workers have counted and nobody has added up
select at, document from redrive.series_sheet;

-- expired: leases that ran out
select * from redrive.ended_leases($1, $2, $3);

-- claimed_by: what was claimed under these tokens; only asked after an answer to a claim was lost. $2 (seconds from now) bounds how
-- soon their leases can end: entries of older claims may lie in the index, dead
select t.id, t.lease_token as token, t.attempt_count, t.max_attempts, t.feature from redrive.task t
where t.state = 'running' and t.lease_expires_at >= (select clock_timestamp()) + make_interval(secs => $2)
  and t.lease_token = any ($1);

-- hold: pause or resume a queue, kind or group
select redrive.set_hold($1, $2, $3, $4, $5);

-- circuit: open, close or change a circuit
select redrive.set_circuit($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- limit: what the fleet may do with a kind
select redrive.set_limit($1, $2, $3, $4);

-- know_names: queues and kinds that an application has, how many others there may be, and how often kinds are tried
select redrive.know_names($1, $2, $3, $4);

-- names: those that nobody declared and nobody uses are given back
select redrive.lapse_names($1);

-- cancel: ask for a running task to stop
select redrive.request_cancel($1, $2, $3);

-- declare: all schedules of an application
select redrive.declare_schedules($1, $2);

-- fire: true for one caller per planned run
select redrive.fire($1, $2, $3);

-- post: movements of money
select redrive.post($1);

-- audit: audit rows of their own, with what their task says about itself
insert into redrive.audit (at, actor, action, reason, task_id, bulk_id, target, kind, scope, trace_id, before, after)
select clock_timestamp(), x.actor, x.action, x.reason, x.task_id, x.bulk_id, x.target,
  coalesce(t.kind, h.kind, case when x.target like 'kind:%' then substr(x.target, 6) end),
  coalesce(x.scope, t.scope, h.scope), coalesce(t.trace_id, h.trace_id), x.before, x.after
from rows from (jsonb_to_recordset($1) as (actor text, action text, reason text, task_id uuid, bulk_id text, target text,
  scope text, before jsonb, after jsonb)) with ordinality x(actor, action, reason, task_id, bulk_id, target, scope, before, after, nth)
left join redrive.task t on t.id = x.task_id
left join lateral (
  select o.kind, o.scope, o.trace_id from redrive.history o where t.id is null and o.id = x.task_id
  order by o.finished_at desc limit 1) h on true
order by x.nth
returning id;

-- audit_rows: rows by their numbers
select * from redrive.audit where id = any ($1) order by id;

-- put_new: a document that must not exist yet
insert into redrive.record (collection, id, state, version, created_at, updated_at, expires_at, body)
values ($1, $2, $3, 1, clock_timestamp(), clock_timestamp(), clock_timestamp() + make_interval(secs => $5), $4)
on conflict do nothing returning version;

-- put: a document that must still be the one that was seen
update redrive.record set state = $3, version = version + 1, updated_at = clock_timestamp(),
  expires_at = clock_timestamp() + make_interval(secs => $5), body = $4
where collection = $1 and id = $2 and version = $6 returning version;

-- record: one document
select * from redrive.record where collection = $1 and id = $2;

-- records: documents; filters and order follow
select * from redrive.record where true

-- forget_audit: rows past their keep
delete from redrive.audit where id = any ($1) returning id;

-- trends: failures per hour of some causes
select fingerprint, hour, n from redrive.failure_hour where fingerprint = any ($1) and hour >= $2 order by hour;

-- due_schedules: schedules whose time has come, and those that were fired by a clock that was ahead: they have to be planned anew
select clock_timestamp() as now, s.* from redrive.schedule s
where s.next_at <= clock_timestamp() or s.last_at > clock_timestamp() + interval '1 min' order by s.next_at;

-- statuses: what has become of these tasks; an id that is in history more than once is its newest row
select t.id, t.state::text, t.failed_seq, t.error_code, t.error_fingerprint, false as erased, t.kind, t.queue, t.trace_id,
  t.attempt_count, t.feature, t.deaths
from redrive.task t where t.id = any ($1)
union all (select distinct on (h.id) h.id, h.state::text, null, null, null, h.erased_at is not null, h.kind, h.queue, h.trace_id,
  h.attempt_count, h.feature, 0
from redrive.history h where h.id = any ($1) and not exists (select 1 from redrive.task t where t.id = h.id)
order by h.id, h.finished_at desc);

-- find_live: live tasks; filters and order follow
select *, state::text as state_name from redrive.task where true

-- find_brief: live tasks without what they carry; filters and order follow
select id, state::text as state_name, kind, queue, null as payload, priority, attempt_count, max_attempts, task_group, scope,
  trace_id, idempotency_key, timeout_ms, created_at, run_at, next_attempt_at, last_attempt_at, lease_token, worker_id, paused_by,
  replay_count, last_replayed_at, cancel_requested_at, join_id
from redrive.task where true

-- find_history: finished tasks; filters and order follow
select *, state::text as state_name from redrive.history where true

-- page_live: live tasks for a page: documents as text, and only up to so many bytes; filters and order follow
select id, state::text as state_name, kind, queue, priority, attempt_count, max_attempts, task_group, scope, trace_id, idempotency_key, timeout_ms,
  created_at, run_at, next_attempt_at, last_attempt_at, lease_token, lease_expires_at, worker_id, cancel_requested_at, paused_by,
  error_code, error_reason, failure_type, error_fingerprint, failed_at, failed_seq, dead_reason, replay_count, last_replayed_at,
  last_replayed_by, last_replayed_reason, last_replayed_bulk_id, feature, facts, join_id,
  case when pg_column_size(payload) <= 4 * $1::bigint and octet_length(payload::text) <= $1::bigint then payload::text end as payload, payload is not null as has_payload,
  case when pg_column_size(progress) <= 4 * $1::bigint and octet_length(progress::text) <= $1::bigint then progress::text end as progress, progress is not null as has_progress,
  error_summary,
  case when octet_length(error_message) <= $1::bigint then error_message end as error_message, error_message is not null as has_error_message,
  case when octet_length(error_stack) <= $1::bigint then error_stack end as error_stack, error_stack is not null as has_error_stack
from redrive.task where true

-- page_history: the same of finished tasks
select id, state::text as state_name, finished_at, erased_at, forgotten, created_at, last_attempt_at, lease_token, execution_ms, attempt_count, max_attempts, replay_count,
  timeout_ms, priority, kind, queue, task_group, scope, trace_id, idempotency_key, worker_id, feature, facts, join_id,
  case when pg_column_size(payload) <= 4 * $1::bigint and octet_length(payload::text) <= $1::bigint then payload::text end as payload, payload is not null as has_payload,
  case when pg_column_size(result) <= 4 * $1::bigint and octet_length(result::text) <= $1::bigint then result::text end as result, result is not null as has_result,
  case when octet_length(cancel_reason) <= $1::bigint then cancel_reason end as cancel_reason, cancel_reason is not null as has_cancel_reason
from redrive.history where true

-- page_letters: the same of dead letters
select id, seq, task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue, task_group, scope, trace_id,
  error_code, error_reason, failure_type, error_fingerprint,
  case when pg_column_size(payload) <= 4 * $1::bigint and octet_length(payload::text) <= $1::bigint then payload::text end as payload, payload is not null as has_payload,
  error_summary,
  case when octet_length(error_message) <= $1::bigint then error_message end as error_message, error_message is not null as has_error_message
from redrive.dead_letter where true

-- page_audit: the same of audit rows
select id, at, actor, action, reason, task_id, bulk_id, target, kind, scope, trace_id, salt, erased,
  case when pg_column_size(before) <= 4 * $1::bigint and octet_length(before::text) <= $1::bigint then before::text end as before, before is not null as has_before,
  case when pg_column_size(after) <= 4 * $1::bigint and octet_length(after::text) <= $1::bigint then after::text end as after, after is not null as has_after
from redrive.audit where true

-- attempts: failed attempts of a task, latest first
select * from redrive.attempt where task_id = $1 order by seq desc limit $2;

-- audit_of: audit rows of a task, latest first
select * from redrive.audit where task_id = $1 order by id desc limit $2;

-- letters: dead letters; filters and order follow
select * from redrive.dead_letter where true

-- letters_before: of a filter, those before one
and seq < (select b.seq from redrive.dead_letter b where b.id = {})

-- letter_counts: how many dead letters there are, and forgotten tasks, per queue and kind
select queue, kind, dead_letters, forgotten from redrive.v_counts where dead_letters <> 0 or forgotten <> 0 order by queue, kind;

-- retry_counts: what became of the tasks of a bulk retry
select x.outcome, x.cause, sum(x.n)::bigint as n from (
  select t.outcome, t.cause, t.n from redrive.retry_total t where t.bulk_id = $1
  union all select d.outcome, d.cause, d.n from redrive.retry_delta d where d.bulk_id = $1
) x group by x.outcome, x.cause having sum(x.n) <> 0;

-- letters_end: the last dead letter
select coalesce(max(seq), 0) from redrive.dead_letter;

-- cancelled: of tasks (h) that were given up, each with its last dead letter (d); columns stand before it, filters, bounds and order follow
from redrive.dead_letter d join redrive.history h on h.id = d.task_id
where h.state = 'cancelled' and h.erased_at is null and not exists (select 1 from redrive.task t where t.id = h.id)
  and not exists (select 1 from redrive.dead_letter l where l.task_id = d.task_id and l.seq > d.seq)

-- failed_ids: tasks that are failed now, by id and place; filters, bounds and order follow
select id, failed_seq, error_fingerprint, failed_at from redrive.task where state = 'failed'

-- failed_places: places in the order of failures; filters, bounds and order follow
select failed_seq from redrive.task where state = 'failed'

-- failed_since: of a filter, those that failed then (0) or later
and failed_at >= {0} and failed_seq > coalesce((
  select s.failed_seq from redrive.task s where s.state = 'failed' and s.failed_at < {1}
  order by s.failed_at desc limit 1), 0)

-- failed_until: of a filter, those that failed before
and failed_at < {0} and failed_seq < coalesce((
  select s.failed_seq from redrive.task s where s.state = 'failed' and s.failed_at >= {1}
  order by s.failed_at limit 1), 9223372036854775807)

-- count_failed: how many; filters follow
select count(*) from redrive.task where state = 'failed'

-- count_causes: how many of some by cause; filters, order, limit, bracket and grouping follow
select fingerprint, count(*) as n from (select error_fingerprint as fingerprint from redrive.task where state = 'failed'

-- count_some_failed: no more than a limit; filters, limit and bracket follow
select count(*) from (select 1 from redrive.task where state = 'failed'

-- sum_failed: the same by totals; filters follow
select coalesce(sum(n), 0)::bigint from redrive.v_failed_counts where true

-- sum_by: the same by one of them alone; dimension and value follow
select coalesce(sum(x.n), 0)::bigint from (
  select m.dimension, m.value, m.n from redrive.failed_sum m
  union all select v.dimension, v.value, d.n from redrive.failed_delta d cross join lateral (values ('total', ''), ('kind', d.kind), ('queue', d.queue), ('group', d.task_group),
      ('code', d.error_code), ('type', d.failure_type), ('reason', d.dead_reason), ('cause', d.fingerprint)) v(dimension, value)
) x where true

-- failed_sums: the largest of each; what was not folded yet is little, and part of every look
with delta as materialized (
  select v.dimension, v.value, sum(d.n) as n from redrive.failed_delta d cross join lateral (values ('total', ''), ('kind', d.kind), ('queue', d.queue), ('group', d.task_group),
      ('code', d.error_code), ('type', d.failure_type), ('reason', d.dead_reason), ('cause', d.fingerprint)) v(dimension, value)
  group by 1, 2
), named as (
  select m.dimension, m.value
  from unnest(array['total', 'kind', 'queue', 'group', 'code', 'type', 'reason', 'cause']) u(dimension)
  cross join lateral (
    select f.dimension, f.value from redrive.failed_sum f where f.dimension = u.dimension
    order by f.n desc, f.value limit $1 + (select count(*) from delta)) m
  union select d.dimension, d.value from delta d
)
select n.dimension, n.value, (coalesce(m.n, 0) + coalesce(d.n, 0))::bigint as n
from named n left join redrive.failed_sum m using (dimension, value) left join delta d using (dimension, value);

-- audit_log: audit rows; filters and order follow
select * from redrive.audit where true

-- count_audit: how many; filters follow
select count(*) from redrive.audit where true

-- failed_counts: tasks that are failed now, by everything they are filtered by
select * from redrive.v_failed_counts where true

-- briefly: whoever waits for a lock of all keeps all others waiting
set local lock_timeout = '1s';

-- stop_moves: for the rest of this transaction nothing fails, and nothing is retried
select redrive.stop_moves();

-- failed_end: the last place that a failure has taken
select coalesce(max(t.failed_seq), 0) from redrive.task t where t.state = 'failed';

-- causes: the causes seen last, before ($2, $3); what was not folded yet is little, and part of every look. {failing}: which of them
(select g.fingerprint from redrive.failure_group g
 where {failing} and ($2::timestamptz is null or (g.last_seen, g.fingerprint) < ($2, $3::text))
 order by g.last_seen desc, g.fingerprint desc
 limit $1 + (select count(distinct d.fingerprint) from redrive.failure_delta d))
union select d.fingerprint from redrive.failure_delta d union select d.fingerprint from redrive.failed_delta d;

-- rank_failing: causes by which most tasks are failed now, after ($2, $3), without $4; what was not folded yet is little
with delta as materialized (
  select d.fingerprint, sum(d.n) as n from redrive.failed_delta d group by 1
), named as (
  (select m.value from redrive.failed_sum m
   where m.dimension = 'cause' and m.n > 0 and m.value <> all ($4::text[])
     and ($2::bigint is null or (m.n <= $2 and (m.n < $2 or m.value > $3::text)))
   order by m.n desc, m.value limit $1 + (select count(*) from delta))
  union select d.fingerprint from delta d where d.fingerprint <> all ($4::text[])
)
select x.fingerprint, x.failed, x.failed as key from (
  select n.value as fingerprint, (coalesce(m.n, 0) + coalesce(d.n, 0))::bigint as failed from named n
  left join redrive.failed_sum m on m.dimension = 'cause' and m.value = n.value
  left join delta d on d.fingerprint = n.value) x
where x.failed > 0 and ($2::bigint is null or x.failed < $2 or (x.failed = $2 and x.fingerprint > $3::text))
order by x.failed desc, x.fingerprint limit $1;

-- count_failing: by how many causes tasks are failed now, without $1, counted up to $2
with delta as materialized (
  select d.fingerprint, sum(d.n) as n from redrive.failed_delta d where d.fingerprint <> all ($1::text[]) group by 1
)
select (select count(*) from (
    select 1 from redrive.failed_sum m where m.dimension = 'cause' and m.n > 0 and m.value <> all ($1::text[])
    limit $2) x)
  + (select coalesce(sum((coalesce(m.n, 0) + d.n > 0)::integer - (coalesce(m.n, 0) > 0)::integer), 0) from delta d
     left join redrive.failed_sum m on m.dimension = 'cause' and m.value = d.fingerprint);

-- all_failing: how many tasks are failed by each cause
select x.fingerprint, sum(x.n) as n from (
  select m.value as fingerprint, m.n from redrive.failed_sum m where m.dimension = 'cause'
  union all select d.fingerprint, d.n from redrive.failed_delta d) x group by 1

-- some_failing: the same of what matches; filters and grouping follow
select fingerprint, sum(n) as n from redrive.v_failed_counts where true

-- rank_causes: what follows on those, as f. 0: failing ones, others (false) or all (null), 1: without these, 2: since when the trend is, 3 and 4: after this one, 5: how many
, delta as materialized (
  select d.fingerprint, sum(d.n) as n, min(d.at) as first_seen, max(d.at) as last_seen,
    coalesce(sum(d.n) filter (where d.at >= {2}::timestamptz), 0) as lately
  from redrive.failure_delta d group by 1
), named as (
  select f.fingerprint from f where {0}::boolean is not false
  union select g.fingerprint from redrive.failure_group g where {0}::boolean is not true
  union select d.fingerprint from delta d where {0}::boolean is not true
), keyed as (
  select n.fingerprint, coalesce(f.n, 0)::bigint as failed, ({order})::bigint as key
  from named n left join f using (fingerprint) left join redrive.failure_group g using (fingerprint)
  left join delta d using (fingerprint)
  where n.fingerprint <> all ({1}::text[]) and ({0}::boolean is null or (coalesce(f.n, 0) > 0) = {0}::boolean)
), counted as (
  select k.*, count(*) over () as total from keyed k where k.key is not null
)
select c.* from counted c
where {3}::bigint is null or c.key < {3}::bigint or (c.key = {3}::bigint and c.fingerprint > {4}::text)
order by c.key desc, c.fingerprint limit {5}

-- by_failed: tasks that are failed now
coalesce(f.n, 0)

-- by_count: failures ever
coalesce(g.n, 0) + coalesce(d.n, 0)

-- by_first: when it was first seen
extract(epoch from least(g.first_seen, d.first_seen)) * 1000000

-- by_last: when it was last seen
extract(epoch from greatest(g.last_seen, d.last_seen)) * 1000000

-- by_trend: failures of the last day
coalesce(d.lately, 0) + coalesce((
  select sum(h.n) from redrive.failure_hour h where h.fingerprint = n.fingerprint and h.hour >= {2}::timestamptz), 0)

-- causes_named: those whose names begin so
select x.fingerprint from (
  select g.fingerprint from redrive.failure_group g where g.fingerprint >= $1 and g.fingerprint < $2
  union select g.fingerprint from redrive.failure_group g where g.alias >= $1 and g.alias < $2
  union select d.fingerprint from redrive.failure_delta d where d.fingerprint >= $1 and d.fingerprint < $2) x limit $3;

-- cause_members: tasks that are failed by a cause, those that failed last: for whom, where, and by which build
select t.scope, t.task_group, a.peer, a.build from (
  select x.id, x.scope, x.task_group from redrive.task x
  where x.state = 'failed' and x.error_fingerprint = $1 order by x.failed_seq desc limit $2) t
left join lateral (
  select y.peer, y.build from redrive.attempt y where y.task_id = t.id order by y.seq desc limit 1) a on true;

-- note_build: which build a worker runs
select redrive.note_build($1, $2);

-- causes_of: failures by cause; message, kind, sample and summary are those of the latest
select distinct on (x.fingerprint) x.fingerprint, (sum(x.n) over w)::bigint as n, x.code, x.reason, x.failure_type, x.message, x.kind,
  x.sample_task, x.error_summary, min(x.first_seen) over w as first_seen, max(x.last_seen) over w as last_seen
from (
  select fingerprint, n, code, reason, failure_type, message, kind, sample_task, error_summary, first_seen, last_seen
  from redrive.failure_group where fingerprint = any ($1)
  union all
  select fingerprint, n, code, reason, failure_type, message, kind, sample_task, error_summary, at, at
  from redrive.failure_delta where fingerprint = any ($1)
) x window w as (partition by x.fingerprint)
order by x.fingerprint, x.last_seen desc, x.sample_task;

-- counts: exact totals per queue and kind
select * from redrive.v_counts order by queue, kind;

-- balance: one account
select balance from redrive.account where name = $1;

-- holds: what is paused
select * from redrive.hold order by at;

-- limits: kinds with a lane of their own
select * from redrive.kind order by kind;

-- circuits: which kinds have which, and whether they are open
select * from redrive.circuit order by name;

-- workers: workers seen lately
select * from redrive.worker order by id;

-- leases: who has how many
select t.worker_id, t.queue, count(*)::integer as tasks,
  (count(*) filter (where t.last_attempt_at < w.started_at - interval '5 s'))::integer as earlier,
  min(t.lease_expires_at) as first_ends, max(t.lease_expires_at) as last_ends
from redrive.task t left join redrive.worker w on w.id = t.worker_id
where t.state = 'running' and t.worker_id is not null and t.lease_expires_at is not null group by t.worker_id, t.queue;

-- schedules: periodic tasks
select * from redrive.schedule order by name;

-- fold: deltas into totals
select redrive.fold($1);

-- recount: running tasks of limited kinds, counted anew
select redrive.recount();

-- promote: what is due in any queue
select redrive.promote_everywhere($1);

-- due_queues: where something is due; asked when a promotion was refused
select distinct t.queue::text as queue from redrive.task t
where t.state = 'delayed' and t.next_attempt_at <= clock_timestamp();

-- partitions: day partitions of history
select redrive.partitions($1);

-- prune: what is past its keep
select removed, more from redrive.prune($1, $2);

-- now: the server's clock
select clock_timestamp();

-- days_ago: a time by the server's clock
select clock_timestamp() - make_interval(secs => $1::double precision * 86400);

-- not_live: those of these tasks that are not live
select u.id from unnest($1::uuid[]) u(id) where not exists (select 1 from redrive.task t where t.id = u.id);

-- erase: personal data goes
select redrive.erase($1, $2, $3, $4, $5, $6, $7);

-- erase_reasons: why circuits were opened and workers drained
select redrive.erase_reasons($1);

-- erase_callbacks: what joins would enqueue about a scope
select redrive.erase_callbacks($1);

-- personal: what is kept about a scope, or about tasks
with meant as materialized (
  select t.id from redrive.task t where t.scope = $1
  union select h.id from redrive.history h where h.scope = $1
  union select d.task_id from redrive.dead_letter d where d.scope = $1
  union select u.id from unnest($2::uuid[]) u(id)
)
select 'running' as place, count(*) as n from meant m join redrive.task t on t.id = m.id where t.state = 'running'
union all select 'live', count(*) from meant m join redrive.task t on t.id = m.id where t.state <> 'running'
union all select 'finished', count(*) from meant m join redrive.history h on h.id = m.id where h.erased_at is null
union all select 'attempts', count(*) from meant m join redrive.attempt a on a.task_id = m.id where a.message <> 'erased'
union all select 'dead_letters', count(*) from meant m join redrive.dead_letter d on d.task_id = m.id
  where d.error_message <> 'erased'
union all select 'causes', count(*) from (
  select g.fingerprint from redrive.failure_group g
  where g.sample_scope = $1 or (g.sample_task = any ($2) and g.message <> 'erased')
  union select g.fingerprint from redrive.failure_delta g
  where g.sample_scope = $1 or (g.sample_task = any ($2) and g.message <> 'erased')) c
union all select 'reasons', count(*) from redrive.circuit c where c.reason = $1 or (length($1) >= 6 and strpos(c.reason, $1) > 0)
union all select 'reasons', count(*) from redrive.worker w where w.drain_reason = $1 or (length($1) >= 6 and strpos(w.drain_reason, $1) > 0)
union all select 'joins', count(*) from redrive.task_join j where j.on_complete ->> 'scope' = $1
union all select 'joins', count(*) from redrive.task_join j where j.on_success ->> 'scope' = $1
union all select 'audit', count(*) from redrive.audit a where $1::text is not null and a.scope = $1
union all select 'audit', count(*) from unnest($2::uuid[]) u(id) join redrive.audit a on a.task_id = u.id
  where a.erased is null;

-- erasable: tasks of a scope that do not run, not even as another task of the same id
select x.id from (
  (select t.id from redrive.task t where t.scope = $1 and t.state <> 'running' limit $2)
  union (select h.id from redrive.history h where h.scope = $1 and h.erased_at is null and not exists (
    select 1 from redrive.task t where t.id = h.id and t.state = 'running') limit $2)
  union (select d.task_id from redrive.dead_letter d where d.scope = $1 and not exists (
    select 1 from redrive.task t where t.id = d.task_id and t.state = 'running') limit $2)) x limit $2;
