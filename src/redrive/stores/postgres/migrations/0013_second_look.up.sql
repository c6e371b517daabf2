-- What was forgotten or purged is told apart from what somebody cancelled, and counted: a retry by a filter leaves it alone.
alter table redrive.history add column forgotten boolean not null default false;
alter table redrive.total add column forgotten bigint not null default 0;
alter table redrive.total_delta add column forgotten bigint not null default 0;
create or replace view redrive.v_counts as
  select x.queue, x.kind, sum(x.queued)::bigint as queued, sum(x.delayed)::bigint as delayed,
    sum(x.running)::bigint as running, sum(x.paused)::bigint as paused, sum(x.failed)::bigint as failed,
    sum(x.completed)::bigint as completed, greatest(sum(x.cancelled), 0)::bigint as cancelled,  -- below: retried after its name lapsed
    sum(x.dead_letters)::bigint as dead_letters, greatest(sum(x.forgotten), 0)::bigint as forgotten
  from (select * from redrive.total union all select * from redrive.total_delta) x
  group by x.queue, x.kind;
-- The view of tasks tells them apart, too, and says what holds back a task that waits: rows of a paused queue or kind stay queued.
create or replace view redrive.v_tasks as
  select t.id, t.state, t.kind::text, t.queue::text, t.task_group::text, t.scope::text, t.priority, t.attempt_count, t.max_attempts::integer, t.created_at,
    t.next_attempt_at, t.last_attempt_at, t.lease_expires_at, t.worker_id, t.failed_at, null::timestamptz as finished_at,
    null::real as execution_ms, t.trace_id::text, t.idempotency_key::text, t.replay_count, t.error_code, t.error_message, t.payload::jsonb,
    t.progress, null::jsonb as result, null::boolean as forgotten,
    case t.state
      when 'queued' then (select h.target || ':' || h.name from redrive.hold h
        where (h.target, h.name) in (('queue', t.queue), ('kind', t.kind), ('group', t.task_group)) order by h.target desc limit 1)
      when 'paused' then t.paused_by
    end as paused_by
  from redrive.task t
  union all
  select h.id, h.state, h.kind, h.queue, h.task_group, h.scope, h.priority, h.attempt_count, h.max_attempts, h.created_at,
    null, h.last_attempt_at, null, h.worker_id, null, h.finished_at, h.execution_ms, h.trace_id, h.idempotency_key,
    h.replay_count, null, h.cancel_reason, h.payload, null, h.result,
    case when h.state = 'cancelled' then h.forgotten end, null
  from redrive.history h;
-- Of what was cancelled before, the audit log knows.
with last as (
  select distinct on (a.task_id) a.task_id, a.action from redrive.audit a
  where a.task_id is not null and a.action in ('TASK_FORGET', 'TASK_FORGET_BATCH_ITEM', 'TASK_PURGE_BATCH_ITEM', 'TASK_CANCEL',
    'TASK_CANCEL_REQUEST', 'TASK_CANCEL_BATCH_ITEM')
  order by a.task_id, a.id desc
), marked as (
  update redrive.history h set forgotten = true from last l
  where h.id = l.task_id and h.state = 'cancelled' and l.action in ('TASK_FORGET', 'TASK_FORGET_BATCH_ITEM', 'TASK_PURGE_BATCH_ITEM')
  returning h.queue, h.kind
)
insert into redrive.total_delta (queue, kind, forgotten) select m.queue, m.kind, count(*) from marked m group by m.queue, m.kind;
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
-- Tasks of a retry, by state; those that were never retried are not in it.
-- beforehand: create index concurrently if not exists task_retried on redrive.task (last_replayed_bulk_id, state, id) where last_replayed_bulk_id is not null;
create index if not exists task_retried on redrive.task (last_replayed_bulk_id, state, id) where last_replayed_bulk_id is not null;

-- Workers say which process they are, so that one of the same machine can see that another is gone, and judges of a fleet of which
-- more are missed than heard note that nobody is to be blamed.
alter table redrive.worker
  add column machine    text,                      -- where its pid means the same process: boot and namespaces; null: not known
  add column birth      bigint,                    -- when its process began, by that machine: pids are used again
  add column cut_off_at timestamptz;               -- leases of it that ended at this moment did so while more were missed than heard: it may have been the network
alter table redrive.task
  add column cut_offs integer not null default 0;  -- how often in a row its worker fell silent so
-- Who runs tasks does not say who may operate. Those who may call redrive.administer(), which grant_api lets, write tokens,
-- sessions, approvals, and what is counted for whom acts alone. Workers close requests that nobody decided in time, drive
-- operations that others began, and clean what quotes somebody who is erased. What waits for a decision stays as it was asked for,
-- to the letter: whoever decides agrees to what they read. An operation that workers begin themselves is the application's or
-- redrive's own, never a person's. What is past its keep they remove, by redrive.prune.
create function redrive.only_erased(p_old jsonb, p_new jsonb) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_escape constant text := '([^[:alnum:]])';
begin
  if p_old is not distinct from p_new then return true; end if;
  if p_old is null or p_new is null or jsonb_typeof(p_old) <> jsonb_typeof(p_new) then return false; end if;
  return case jsonb_typeof(p_old)
    -- The tombstone of an erasure that is under way stands where its scope was, or a trace of it, and nothing else has changed.
    when 'string' then exists (
      select 1 from redrive.record r
      cross join lateral (select 'erased:' || right(r.id, 12) as tombstone, (
        select string_agg(regexp_replace(n.name, v_escape, '\\\1', 'g'), '|') from (
          select r.body #>> '{which,scope}' as name union all select jsonb_array_elements_text(r.body -> 'traces')) n) as names) e
      where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
        and r.body #>> '{which,scope}' <> 'erased' and strpos(p_new #>> '{}', e.tombstone) > 0
        and p_old #>> '{}' ~ ('^' || (
          select string_agg(regexp_replace(u.part, v_escape, '\\\1', 'g'), '(?:' || e.names || ')' order by u.nth)
          from unnest(string_to_array(p_new #>> '{}', e.tombstone)) with ordinality u(part, nth)) || '$'))
    when 'array' then jsonb_array_length(p_old) = jsonb_array_length(p_new) and not exists (
      select 1 from generate_series(0, jsonb_array_length(p_old) - 1) i where not redrive.only_erased(p_old -> i, p_new -> i))
    when 'object' then not exists (select 1 from jsonb_object_keys(p_old || p_new) k
      where not (p_old ? k and p_new ? k) or not redrive.only_erased(p_old -> k, p_new -> k))
    else false end;
end $$;
revoke all on function redrive.only_erased(jsonb, jsonb) from public;
create function redrive.guard_record() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_collection text := case when tg_op = 'DELETE' then old.collection else new.collection end;
  -- How far an operation has come is its worker's to say.
  v_free text[] := case v_collection when 'operation' then array['total', 'cursor', 'done', 'skipped', 'canary', 'fingerprints', 'note',
    'erased', 'traces', 'last_piece', 'driver'] else array[]::text[] end;
  v_old jsonb;
  v_new jsonb;
  v_allowed boolean := false;
begin
  if redrive.administers() then
    v_allowed := true;
  elsif tg_op = 'INSERT' then
    v_allowed := v_collection = 'audit-seal' or (v_collection = 'operation' and new.state <> 'waiting'
      and new.body ->> 'approval' is null and new.body ->> 'action' in ('retry', 'forget', 'cancel', 'work')
      and (new.body ->> 'actor' in ('app', 'redrive') or new.body ->> 'actor' like 'redrive:%'));
  elsif tg_op = 'DELETE' then
    v_allowed := redrive.prunable(old);
  elsif old.collection = new.collection and v_collection in ('approval', 'operation') then
    v_old := old.body - v_free;
    v_new := new.body - v_free;
    if old.state <> new.state and v_collection = 'approval' and new.body ->> 'decided_by' = 'redrive'
      and new.body ->> 'decision' = new.state
    then
      v_old := v_old - array['decided_by', 'decision', 'decision_reason'];
      v_new := v_new - array['decided_by', 'decision', 'decision_reason'];
    end if;
    if v_collection = 'operation' then
      if new.body ->> 'action' = 'erase' and new.body -> 'which' = '{"scope": "erased"}' then
        v_old := v_old - 'which';  -- an erasure that has done its work does not say either whom it was about
        v_new := v_new - 'which';
      end if;
      if v_old ? 'work' and v_new ? 'work' then
        v_old := jsonb_set(v_old, '{work}', (v_old -> 'work') - array['state', 'result']);
        v_new := jsonb_set(v_new, '{work}', (v_new -> 'work') - array['state', 'result']);
      end if;
    end if;
    v_allowed := old.id = new.id and old.seq = new.seq and old.created_at = new.created_at
      and new.updated_at > clock_timestamp() - interval '1 minute' and new.version = old.version + 1
      and case
        when old.state = new.state and old.state in ('pending', 'waiting') then
          old.body = new.body and old.expires_at is not distinct from new.expires_at
        when old.state = new.state then true
        when v_collection = 'approval' then old.state = 'pending' and new.state in ('expired', 'withdrawn')
        when old.state = 'waiting' then new.state = 'cancelled'
        else new.state <> 'waiting' and old.state not in ('completed', 'stopped', 'cancelled') end
      -- By its traces an erasure finds what quotes somebody: those of tasks that were there before it began, and no other words.
      and not exists (select 1 from jsonb_array_elements_text(case when jsonb_typeof(new.body -> 'traces') = 'array' then new.body -> 'traces' end) n(name)
        where coalesce(old.body -> 'traces' ? n.name, false) is false
          and not exists (select 1 from redrive.task t where t.trace_id = n.name and t.scope = old.body #>> '{which,scope}' and t.created_at < old.created_at)
          and not exists (select 1 from redrive.history h where h.trace_id = n.name and h.scope = old.body #>> '{which,scope}' and h.created_at < old.created_at)
          and not exists (select 1 from redrive.audit a where a.trace_id = n.name and a.scope = old.body #>> '{which,scope}' and a.at < old.created_at))
      -- What was said in a document that is about somebody who is erased goes altogether.
      and not exists (select 1 from jsonb_object_keys(v_old || v_new) k
        where not redrive.only_erased(v_old -> k, v_new -> k)
          and not (k in ('reason', 'decision_reason', 'fixed', 'note') and v_new ->> k = 'erased' and exists (
            select 1 from redrive.record r where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
              and strpos(old.body::text, to_jsonb(r.body #>> '{which,scope}')::text) > 0)));
  end if;
  if not v_allowed then
    raise exception 'role % may not write this document of the collection %', redrive.caller(), v_collection using
      errcode = 'insufficient_privilege', hint = format('as the owner of the schema: select redrive.grant_api(%L)', redrive.caller());
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;
create trigger guard_new before insert or update on redrive.record for each row
  when (new.collection in ('access', 'token', 'session', 'approval', 'alone', 'operation', 'audit-seal')) execute function redrive.guard_record();
create trigger guard_old before update or delete on redrive.record for each row
  when (old.collection in ('access', 'token', 'session', 'approval', 'alone', 'operation', 'audit-seal')) execute function redrive.guard_record();
-- That there was a token is known for good: without any, the API takes who calls from this machine for an administrator.
insert into redrive.record (collection, id, state, version, created_at, updated_at, body)
select 'access', 'tokens', '', 1, clock_timestamp(), clock_timestamp(), '{}'
where exists (select 1 from redrive.record r where r.collection = 'token');
-- Nobody who runs tasks removes what was noted today: retention is for what is old, a filter of an operator's is the API's.
create function redrive.guard_audit() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() then
    raise exception 'role % may not remove rows of the audit log that are younger than a day', redrive.caller() using
      errcode = 'insufficient_privilege', hint = format('set TASK_AUDIT_LOG_TTL_DAYS to 1 or more; or, as the owner of the schema: '
        'select redrive.grant_api(%L)', redrive.caller());
  end if;
  return old;
end $$;
create trigger guard_young before delete on redrive.audit for each row
  when (old.at > clock_timestamp() - interval '1 day') execute function redrive.guard_audit();
-- Causes that a newer algorithm takes for one go on under the name that the first of them had; this is its newest name.
alter table redrive.failure_group add column alias text;
alter table redrive.failure_delta add column alias text;
create index failure_group_alias on redrive.failure_group (alias) where alias is not null;
-- Whom a failed attempt called, and which build of the application ran it.
alter table redrive.attempt add column peer text, add column build text;
alter table redrive.worker add column build text;

-- The same work in another queue is other work; null: a key from before, of which the queue was not written.
alter table redrive.idempotency_key add column queue text;
-- Names that producers use are bounded, unless an application has declared them: see "admit_name".
create table redrive.used_name (
  queue     text not null,
  kind      text not null,
  declared  boolean not null,                      -- both, by some application: then it is not counted
  declared_by text,                                -- not announced: the role that only enqueues, which says so; '': one that may announce it
  tasks     bigint not null default 0,             -- ever, at the last look
  used_at   timestamptz not null default clock_timestamp()
);
create index used_name_of on redrive.used_name (queue, kind);
create table redrive.name_allowance (              -- names that a role which only enqueues has declared, in ten parts: see "declare_name"
  role  text not null,
  part  integer not null,
  used  bigint not null default 0,
  primary key (role, part)
);
create table redrive.known_name (
  what  text not null check (what in ('queue', 'kind')),
  name  text not null,
  max_attempts integer,                            -- of a kind: how often its handler's application says that it is tried
  primary key (what, name)
);
create table redrive.name_bound (
  one   boolean primary key default true check (one),
  most  bigint not null
);
create table redrive.name_lock ();       -- who begins to use a name shares it; whoever counts them has it alone
create sequence redrive.names;
insert into redrive.known_name (what, name) values ('queue', 'default'), ('kind', 'SYSTEM_HEALTH_CHECK'), ('kind', 'SYSTEM_FAIL_ALWAYS');
insert into redrive.used_name (queue, kind, declared) select c.queue, c.kind, false from redrive.v_counts c;
select setval('redrive.names', greatest(count(*), 1), count(*) > 0) from redrive.used_name;
-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

-- functions/add.sql

-- What a key stands for. The separator keeps kind "A" with payload "12" apart from kind "A1" with payload "2".
create or replace function redrive.digest(p_kind text, p_payload jsonb) returns bytea
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select sha256(convert_to(p_kind || chr(31) || coalesce(p_payload::text, ''), 'UTF8'))
$$;

-- A caller's own id names one task for ever: one that has finished does not begin again. Asked after the insert, which
-- waits for whoever moves the task to the history at this moment; and only for ids that are not of these ten minutes,
-- because it looks into every day of the history.
create or replace function redrive.refuse_finished(p_ids uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_id uuid;
begin
  select h.id into v_id from redrive.history h
  where h.id = any (p_ids) and exists (select 1 from redrive.task t where t.id = h.id) limit 1;
  if v_id is not null then
    raise exception 'task % has finished, and its id cannot be used again', v_id using
      errcode = 'unique_violation', hint = 'leave the id out, or give each task its own';
  end if;
end $$;

-- Many tasks, as columns; a null array means the default for all, and one kind, queue, priority or max_attempts is
-- everybody's. Answers only the rows that were not created because their key already names a task. p_again: the same
-- ids may have landed before. For the fleet's own use: producers call "enqueue".
create or replace function redrive.add(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false, p_features text[] default null,
  p_facts jsonb[] default null, p_joins uuid[] default null
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := clock_timestamp();
  v_priority constant integer := case when cardinality(p_priorities) = 1 then p_priorities[1] end;
  v_max_attempts integer;
  v_lanes constant boolean := exists (select 1 from redrive.kind);
  -- There are whole contexts among the traces: a trace is found by its id alone.
  v_contexts constant boolean := exists (select 1 from unnest(p_traces) u(v) where redrive.trace_parent(u.v) is not null);
  v_taken text[];
  v_skip uuid[] := '{}';
  v_queues jsonb;
  v_joins uuid[];
begin
  if exists (
    select 1 from unnest(array[cardinality(p_kinds), cardinality(p_queues), cardinality(p_priorities),
      cardinality(p_max_attempts)]) n where n <> 1 and n <> cardinality(p_ids)
  ) then
    raise exception 'give one kind, queue, priority and max_attempts, or as many as there are ids' using
      errcode = 'invalid_parameter_value';
  end if;
  if p_max_attempts is null or exists (select 1 from unnest(p_max_attempts) m where m < 0 or m is null) then
    p_max_attempts := array(
      select redrive.attempts_of(coalesce(u.kind, p_kinds[1]),
        case when cardinality(p_max_attempts) = 1 then p_max_attempts[1] else u.given end)
      from unnest(p_ids, p_kinds, p_max_attempts) with ordinality u(id, kind, given, nth) order by u.nth);
  end if;
  v_max_attempts := case when cardinality(p_max_attempts) = 1 then p_max_attempts[1] end;
  perform redrive.check_numbers(p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_priorities);
  perform redrive.check_name('kind', k.name) from (select distinct u.name from unnest(p_kinds) u(name)) k;
  perform redrive.check_name('queue', q.name) from (select distinct u.name from unnest(p_queues) u(name)) q;
  -- Called for those that are wrong, to say so.
  perform redrive.check_label(l.what, u.v)
  from (values ('group', p_groups), ('scope', p_scopes), ('trace_id', p_traces), ('idempotency_key', p_keys)) l(what, given)
  cross join unnest(l.given) u(v)
  where char_length(u.v) not between 1 and 512 or octet_length(u.v) > 1536
    or u.v ~ '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]';

  if p_keys is not null then
    -- Sorted by key, so that two bulk calls with the same keys wait for each other instead of deadlocking.
    with taken as (
      insert into redrive.idempotency_key as ik (key, task_id, digest, created_at, queue)
      select distinct on (x.key) x.key, x.id, redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload), v_now,
        coalesce(x.queue, p_queues[1])
      from unnest(p_ids, p_kinds, p_queues, p_payloads, p_keys) with ordinality x(id, kind, queue, payload, key, ord)
      where x.key is not null order by x.key, x.ord
      on conflict do nothing returning ik.key
    )
    select coalesce(array_agg(t.key), '{}') into v_taken from taken t;
  end if;
  if cardinality(v_taken) < cardinality(array_remove(p_keys, null)) then
    -- A new statement sees what concurrent callers committed while we waited for their keys. A key that was not taken just
    -- now names a task that is there or was: another one, or this very one, brought in by an earlier call.
    return query
    select x.id, ik.task_id, ik.digest <> redrive.digest(coalesce(x.kind, p_kinds[1]), x.payload)
      or coalesce(ik.queue <> coalesce(x.queue, p_queues[1]), false)
    from unnest(p_ids, p_kinds, p_queues, p_payloads, p_keys) x(id, kind, queue, payload, key)
    join redrive.idempotency_key ik on ik.key = x.key left join unnest(v_taken) t(key) on t.key = x.key
    where ik.task_id <> x.id or (t.key is null and not p_again);
    v_skip := array(
      select x.id from unnest(p_ids, p_keys) x(id, key)
      join redrive.idempotency_key ik on ik.key = x.key left join unnest(v_taken) t(key) on t.key = x.key
      where ik.task_id <> x.id or t.key is null);
  end if;
  if p_again then
    v_skip := v_skip || array(select t.id from redrive.task t where t.id = any (p_ids))
      || array(select h.id from redrive.history h where h.id = any (p_ids));
  end if;

  with new as (
    insert into redrive.task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
      kind, queue, lane, task_group, scope, trace_id, idempotency_key, payload, feature, facts, join_id, trace_parent)
    select x.id, v_now, case when x.due > v_now then 0 else nextval('redrive.position') end, x.due,
      case when x.due > v_now then x.due end,
      case when x.due > v_now then 'delayed' else 'queued' end::redrive.state, coalesce(x.max_attempts, v_max_attempts, 5),
      x.timeout_ms, coalesce(x.priority, v_priority, 0), x.kind, coalesce(x.queue, p_queues[1]),
      case when v_lanes then coalesce((select k.kind from redrive.kind k where k.kind = x.kind), '') else '' end,
      x.task_group, x.scope, case when v_contexts then redrive.trace_id(x.trace_id) else x.trace_id end, x.key, x.payload, x.feature,
      x.facts, x.join_id, case when v_contexts then redrive.trace_parent(x.trace_id) end
    from (
      select u.id, coalesce(u.given_kind, p_kinds[1]) as kind, u.queue, u.payload, u.priority, u.max_attempts, u.timeout_ms,
        u.task_group, u.scope, u.trace_id, u.key, u.feature, u.facts, u.join_id,
        coalesce(u.run_at, v_now + make_interval(secs => u.delay)) as due
      from unnest(p_ids, p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts, p_delays, p_run_ats, p_timeouts_ms,
        p_groups, p_scopes, p_traces, p_keys, p_features, p_facts, p_joins)
        u(id, given_kind, queue, payload, priority, max_attempts, delay, run_at, timeout_ms, task_group, scope, trace_id, key,
          feature, facts, join_id)
      where u.id <> all (v_skip)
    ) x
    -- Without "on conflict", which costs a fifth more: an earlier try of the same call that is committing at this
    -- moment ends in a unique violation, and the next try sees what it committed.
    returning task.queue, task.kind, task.state, task.position, task.next_attempt_at, task.join_id
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed)
    select n.queue, n.kind, count(*) filter (where n.state = 'queued'), count(*) filter (where n.state = 'delayed')
    from new n group by n.queue, n.kind
  )
  -- Once for each queue, and after the insert, not while it runs.
  select (select jsonb_agg(q.*) from (
      select n.queue, min(n.position) filter (where n.state = 'queued') as position, min(n.next_attempt_at) as due
      from new n group by n.queue) q),
    (select array_agg(n.join_id) from new n where p_joins is not null and n.join_id is not null)
  into v_queues, v_joins;
  if v_joins is not null then perform redrive.add_members(v_joins); end if;
  perform case when q.position is not null then redrive.wake(q.queue, q.position) end,
    case when q.due is not null then redrive.wake_due(q.queue, q.due) end
  from jsonb_to_recordset(v_queues) q(queue text, position bigint, due timestamptz);
end $$;

-- functions/names.sql

-- Names: a kind in a queue, from its first enqueue on. Everything that looks at the fleet looks at each of them, so those that no application has
-- declared are bounded: else one producer could keep every worker busy with looking. "redrive.used_name" is read for each enqueue and written
-- for a new one alone. Its rows are not unique: whoever begins to use a name in a transaction that stays open holds up nobody.

-- Lets producers use a new name, or refuses it. The sequence counts those that nobody declared: no transaction waits for another, and no two
-- get the last place. What was counted and rolled back is given back by "lapse_names".
create or replace function redrive.admit_name(p_queue text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_most bigint;
begin
  if redrive.is_declared(p_queue, p_kind) then
    insert into redrive.used_name (queue, kind, declared) values (p_queue, p_kind, true);
    return;
  end if;
  lock table redrive.name_lock in row share mode;  -- until it is committed, nobody counts anew
  v_most := coalesce((select b.most from redrive.name_bound b), 1000);
  -- Looked at first, so that those that are refused do not count; two at once may see the same last place, and one of them gets it.
  if (select s.is_called and s.last_value >= v_most or v_most < 1 from redrive.names s) or nextval('redrive.names') > v_most then
    raise exception 'too many names: kind % in queue % would be one more than % that no application has declared', p_kind, p_queue, v_most using
      errcode = 'invalid_parameter_value',
      hint = 'start a worker whose application has the kind and serves the queue, or raise REDRIVE_MAX_NAMES for the workers; '
        'names that have no tasks any more are given back after a day';
  end if;
  insert into redrive.used_name (queue, kind, declared) values (p_queue, p_kind, false);
end $$;

create or replace function redrive.is_declared(p_queue text, p_kind text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select 1 from redrive.known_name k where k.what = 'queue' and k.name = p_queue)
    and exists (select 1 from redrive.known_name k where k.what = 'kind' and k.name = p_kind)
$$;

-- The same for a name that the producer's application declares, although no worker has said so yet. Who may announce it is taken at his word.
-- Others say what they like: each role that only enqueues has so many, and whatever one of them makes takes none from the others. They
-- are counted in parts, of which a transaction has one to itself: it gives back what it rolls back, and no transaction waits for another.
create or replace function redrive.declare_name(p_queue text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_most constant bigint := greatest(coalesce((select b.most from redrive.name_bound b), 1000), 1000) / 10;
  v_role text := '';
begin
  if redrive.is_declared(p_queue, p_kind) then
    perform redrive.admit_name(p_queue, p_kind);
    return;
  end if;
  if not redrive.announces() then
    lock table redrive.name_lock in row share mode;  -- until it is committed, nobody counts anew
    update redrive.name_allowance a set used = a.used + 1 from (
      select x.role, x.part from redrive.name_allowance x join pg_roles r on r.rolname = x.role
      where pg_has_role(redrive.caller(), r.oid, 'usage') and x.used < v_most
      order by x.role, x.part limit 1 for update of x skip locked) f
    where a.role = f.role and a.part = f.part returning a.role into v_role;
    if not found then
      perform redrive.admit_name(p_queue, p_kind);
      return;
    end if;
  end if;
  insert into redrive.used_name (queue, kind, declared, declared_by) values (p_queue, p_kind, true, v_role);
end $$;

-- How often tasks are tried at most: a number below zero, or none, is what a producer expects who has no handler of the kind. That of
-- an application which has one and says how often goes before it.
create or replace function redrive.attempts_of(p_kind text, p_given integer) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when p_given > 0 then p_given else coalesce(
    (select k.max_attempts from redrive.known_name k where k.what = 'kind' and k.name = p_kind), -p_given, 5) end
$$;

-- What an application declares, how often it tries kinds that it handles (null: it does not say), and how many other names there may be.
-- Declared ones are never refused.
create or replace function redrive.know_names(p_queues text[], p_kinds text[], p_most bigint, p_attempts jsonb default '{}') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.known_name (what, name)
  select u.what, u.name from (
    select 'queue' as what, q.name from unnest(p_queues) q(name) union select 'kind', k.name from unnest(p_kinds) k(name)) u
  where not exists (select 1 from redrive.known_name k where k.what = u.what and k.name = u.name) order by 1, 2
  on conflict do nothing;
  update redrive.known_name k set max_attempts = a.value::integer from jsonb_each_text(p_attempts) a
  where k.what = 'kind' and k.name = a.key and k.max_attempts is distinct from a.value::integer;
  if p_most is null or exists (select 1 from redrive.name_bound b where b.most = p_most) then return; end if;
  insert into redrive.name_bound as b (one, most) values (true, p_most) on conflict (one) do update set most = excluded.most;
end $$;

-- Names that nobody announced and that had no tasks for p_idle seconds are given back, and totals in which they count nothing but tasks that
-- were cancelled. Returns how many.
create or replace function redrive.lapse_names(p_idle double precision) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_gone integer;
  v_left bigint;
begin
  begin
    lock table redrive.name_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- an open transaction has begun to use one: it would not be counted
  end;
  delete from redrive.used_name n using redrive.used_name m where m.queue = n.queue and m.kind = n.kind and m.ctid < n.ctid;
  update redrive.used_name n set declared_by = null where n.declared_by is not null and redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set declared = not n.declared where n.declared_by is null and n.declared <> redrive.is_declared(n.queue, n.kind);
  update redrive.used_name n set tasks = c.tasks, used_at = v_now
  from (
    select v.queue, v.kind, v.queued + v.delayed + v.running + v.paused + v.failed as live,
      v.queued + v.delayed + v.running + v.paused + v.failed + v.completed + v.cancelled as tasks
    from redrive.v_counts v) c
  where (n.declared_by is not null or not n.declared) and c.queue = n.queue and c.kind = n.kind
    and (c.tasks <> n.tasks or c.live > 0 and n.used_at < v_now - make_interval(secs => p_idle / 2));
  delete from redrive.used_name n where (n.declared_by is not null or not n.declared) and n.used_at < v_now - make_interval(secs => p_idle);
  get diagnostics v_gone = row_count;
  delete from redrive.total t
  where t.queued = 0 and t.delayed = 0 and t.running = 0 and t.paused = 0 and t.failed = 0 and t.completed = 0 and t.dead_letters = 0
    and not exists (select 1 from redrive.total_delta d where d.queue = t.queue and d.kind = t.kind)
    and not exists (select 1 from redrive.used_name n where n.queue = t.queue and n.kind = t.kind)
    and not redrive.is_declared(t.queue, t.kind);
  select count(*) into v_left from redrive.used_name n where not n.declared;
  perform setval('redrive.names', greatest(v_left, 1), v_left > 0);
  delete from redrive.name_allowance a where not exists (select 1 from pg_roles r where r.rolname = a.role);
  update redrive.name_allowance a set used = c.used from (
    select x.role, x.part, n.n / 10 + (x.part <= n.n % 10)::integer as used from redrive.name_allowance x cross join lateral (
      select count(*) as n from redrive.used_name u where u.declared_by = x.role) n) c
  where a.role = c.role and a.part = c.part and a.used <> c.used;
  return v_gone;
end $$;

-- functions/enqueue.sql

-- Enqueueing: callable from any driver, ORM, trigger or language, inside the caller's own transaction.
-- security definer: a producer needs EXECUTE on redrive.enqueue and nothing else.

-- Kinds that features keep to themselves are refused to producers: whoever could enqueue one could have money settled, or a text
-- signed. The table has a few rows, one for each beginning of a kind; features write theirs with their steps.
create or replace function redrive.refuse_reserved(p_kinds text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_found record;
begin
  select u.kind, r.feature into v_found from redrive.reserved_kind r join unnest(p_kinds) u(kind) on starts_with(u.kind, r.begins) limit 1;
  if found then
    raise exception 'the kind % is kept for the feature %, which enqueues it itself', left(v_found.kind, 80), v_found.feature using
      errcode = 'invalid_parameter_value', hint = 'call what the feature offers, or give your kind another name';
  end if;
end $$;

-- Many tasks, as columns: redrive.add for producers. Keys of schedules are the fleet's: whoever took one would silence a planned run.
create or replace function redrive.enqueue(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_chosen uuid[];
  v_from constant uuid := redrive.id_from(-600);
  v_to constant uuid := redrive.id_from(600);
begin
  if exists (select 1 from unnest(p_keys) k where starts_with(k, 'schedule:')) then
    raise exception 'an idempotency key must not begin with "schedule:"' using
      errcode = 'invalid_parameter_value', hint = 'those keys are reserved for the runs of schedules';
  end if;
  if exists (select 1 from unnest(p_keys) k where starts_with(k, 'redrive:')) then
    raise exception 'an idempotency key must not begin with "redrive:"' using
      errcode = 'invalid_parameter_value', hint = 'those keys are kept for tasks of features';
  end if;
  perform redrive.refuse_reserved(p_kinds);
  return query select a.id, a.existing, a.conflict from redrive.add(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
    p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_again) a;
  -- Of tasks that are new: who repeats a key makes none.
  perform redrive.admit_name(n.queue, n.kind) from (
    select distinct coalesce(u.queue, p_queues[1]) as queue, coalesce(u.kind, p_kinds[1]) as kind
    from unnest(p_ids, p_kinds, p_queues, p_keys) u(id, kind, queue, key)
    where u.key is null or exists (select 1 from redrive.idempotency_key k where k.key = u.key and k.task_id = u.id)) n
  where not exists (select 1 from redrive.used_name x where x.queue = n.queue and x.kind = n.kind);
  v_chosen := array(select u.id from unnest(p_ids) u(id) where u.id not between v_from and v_to);
  if cardinality(v_chosen) > 0 then perform redrive.refuse_finished(v_chosen); end if;
end $$;

-- The same for an application that declares the kinds and queues of some of them (p_declared; null: of all), although no worker may have
-- announced them yet.
create or replace function redrive.enqueue_declared(
  p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[], p_max_attempts integer[],
  p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[], p_scopes text[],
  p_traces text[], p_keys text[], p_again boolean default false, p_declared boolean[] default null
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform redrive.refuse_reserved(p_kinds);
  perform redrive.check_name('queue', n.queue), redrive.check_name('kind', n.kind), redrive.declare_name(n.queue, n.kind) from (
    select distinct coalesce(u.queue, p_queues[1]) as queue, coalesce(u.kind, p_kinds[1]) as kind
    from unnest(p_ids, p_kinds, p_queues, p_declared) u(id, kind, queue, declared) where p_declared is null or u.declared) n
  where not exists (select 1 from redrive.used_name x where x.queue = n.queue and x.kind = n.kind);
  return query select e.id, e.existing, e.conflict from redrive.enqueue(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
    p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_again) e;
end $$;

-- One task, with named arguments:
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', queue => 'mail', idempotency_key => 'order-17');
-- "trace_id" takes the id of a trace, or a whole W3C traceparent: then each attempt's span knows who enqueued it.
-- Answers the task's id: the existing task's when the key is known. A known key with other work raises.
-- "max_attempts => null": as often as the application says that handles the kind.
-- Names, types too, are qualified instead of setting a search_path, which would cost a tenth of the call.
create or replace function redrive.enqueue(
  kind text, payload jsonb default null, queue text default 'default', priority integer default 0,
  max_attempts integer default 5, delay interval default null, run_at timestamptz default null,
  timeout interval default null, task_group text default null, scope text default null, trace_id text default null,
  idempotency_key text default null, id uuid default null
) returns uuid
language plpgsql security definer as $$
#variable_conflict use_variable
declare
  v_id pg_catalog.uuid := coalesce(id, redrive.new_id());
  v_position pg_catalog.int8;
  v_parent pg_catalog.text;
begin
  -- One statement: names that are in use were checked when they were new.
  if exists (select 1 from redrive.reserved_kind r where pg_catalog.starts_with(kind, r.begins)) or not exists (
    select 1 from redrive.used_name n
    where n.queue operator(pg_catalog.=) coalesce(enqueue.queue, 'default') and n.kind operator(pg_catalog.=) enqueue.kind
  ) then
    perform redrive.refuse_reserved(array[kind]), redrive.check_name('kind', kind), redrive.check_name('queue', coalesce(queue, 'default'));
    -- Of a task with a key it is known later whether it is new.
    if idempotency_key is null then perform redrive.admit_name(coalesce(queue, 'default'), kind); end if;
  end if;
  -- Null is the default, for callers that always pass every argument.
  if queue is null or priority is null then
    queue := coalesce(queue, 'default'); priority := coalesce(priority, 0);
  end if;
  if max_attempts is null or max_attempts operator(pg_catalog.<) 0 then
    max_attempts := redrive.attempts_of(kind, max_attempts);
  end if;
  if pg_catalog.num_nonnulls(delay, run_at, timeout, idempotency_key) operator(pg_catalog.>) 0
    or max_attempts operator(pg_catalog.<) 1 or max_attempts operator(pg_catalog.>) 1000000
    or priority operator(pg_catalog.<) -32768 or priority operator(pg_catalog.>) 32767 then
    v_id := redrive.enqueue_with_options(kind, payload, queue, priority, max_attempts, delay, run_at, timeout, task_group, scope,
      trace_id, idempotency_key, v_id);
    if id operator(pg_catalog.<) redrive.id_from(-600) or id operator(pg_catalog.>) redrive.id_from(600) then
      perform redrive.refuse_finished(array[id]);
    end if;
    return v_id;
  end if;
  if task_group is not null then perform redrive.check_label('group', task_group); end if;
  if scope is not null then perform redrive.check_label('scope', scope); end if;
  if trace_id is not null then
    perform redrive.check_label('trace_id', trace_id);
    v_parent := redrive.trace_parent(trace_id);
    if v_parent is not null then trace_id := redrive.trace_id(trace_id); end if;
  end if;
  v_position := pg_catalog.nextval('redrive.position');
  insert into redrive.task (id, created_at, position, state, max_attempts, priority, kind, queue, lane, task_group, scope,
    trace_id, payload, trace_parent)
  values (v_id, pg_catalog.clock_timestamp(), v_position, 'queued', max_attempts, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind operator(pg_catalog.=) enqueue.kind), ''), task_group, scope,
    trace_id, payload, v_parent);
  insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
  if id operator(pg_catalog.<) redrive.id_from(-600) or id operator(pg_catalog.>) redrive.id_from(600) then
    perform redrive.refuse_finished(array[id]);
  end if;
  perform redrive.wake(queue, v_position);
  return v_id;
end $$;

-- The same for a caller that has a W3C traceparent, by name: each attempt's span then is a child of the caller's.
--   select redrive.enqueue('SEND_EMAIL', '{"to": "a@b.c"}', traceparent => '00-4bf9…-00f0…-01', queue => 'mail');
-- One that is malformed is ignored, as the standard asks. A form of its own, not one more argument with a default: that would
-- make calls of fourteen untyped parameters, as drivers send them for many tasks, ambiguous. Whoever does not name "traceparent" never
-- gets here: of two texts in the third place PostgreSQL prefers "text" to a domain, and all other places have the types of the form above.
create or replace function redrive.enqueue(
  kind text, payload jsonb, traceparent redrive.traceparent, priority integer default 0,
  max_attempts integer default 5, delay interval default null, run_at timestamptz default null,
  timeout interval default null, task_group text default null, scope text default null, queue text default 'default',
  idempotency_key text default null, id uuid default null
) returns uuid
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return redrive.enqueue(kind, payload, queue, priority, max_attempts, delay, run_at, timeout, task_group, scope,
    case when char_length(traceparent) <= 512 and traceparent ~ '^[ -~]*$' then redrive.trace_parent(traceparent) end,
    idempotency_key, id);
end $$;

-- One task with a key, a time or a timeout.
create or replace function redrive.enqueue_with_options(
  kind text, payload jsonb, queue text, priority integer, max_attempts integer, delay interval, run_at timestamptz,
  timeout interval, task_group text, scope text, trace_id text, idempotency_key text, id uuid
) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_now constant timestamptz := clock_timestamp();
  v_timeout_ms constant integer := redrive.milliseconds(timeout);
  v_due timestamptz;
  v_waits boolean;
  v_position bigint := 0;
  v_existing record;
begin
  perform redrive.check_name('kind', kind), redrive.check_name('queue', queue);
  perform redrive.check_label('group', task_group), redrive.check_label('scope', scope),
    redrive.check_label('trace_id', trace_id);
  perform redrive.check_numbers(array[max_attempts], array[extract(epoch from delay)::double precision], array[run_at],
    array[v_timeout_ms], array[priority]);
  v_due := coalesce(run_at, v_now + delay);
  if idempotency_key is not null then
    select * into v_existing from redrive.enqueue(array[id], array[kind], array[queue], array[payload], array[priority],
      array[max_attempts], null, array[v_due], array[v_timeout_ms], array[task_group],
      array[scope], array[trace_id], array[idempotency_key]);
    if v_existing.conflict then
      raise exception 'idempotency key % already belongs to task %, which has another kind, queue or payload',
        quote_literal(idempotency_key), v_existing.existing using errcode = 'unique_violation';
    end if;
    return coalesce(v_existing.existing, id);
  end if;
  v_waits := coalesce(v_due > v_now, false);
  if not v_waits then v_position := nextval('redrive.position'); end if;
  insert into redrive.task (id, created_at, position, run_at, next_attempt_at, state, max_attempts, timeout_ms, priority,
    kind, queue, lane, task_group, scope, trace_id, payload, trace_parent)
  values (id, v_now, v_position, v_due, case when v_waits then v_due end,
    case when v_waits then 'delayed' else 'queued' end::redrive.state, max_attempts,
    v_timeout_ms, priority, kind, queue,
    coalesce((select k.kind from redrive.kind k where k.kind = enqueue_with_options.kind), ''), task_group, scope,
    redrive.trace_id(trace_id), payload, redrive.trace_parent(trace_id));
  if v_waits then
    insert into redrive.total_delta (queue, kind, delayed) values (queue, kind, 1);
    perform redrive.wake_due(queue, v_due);
  else
    insert into redrive.total_delta (queue, kind, queued) values (queue, kind, 1);
    perform redrive.wake(queue, v_position);
  end if;
  return id;
end $$;

-- functions/claim.sql

-- Payloads that were written past the limit are not handed out: the claim is refused, and their rows are set aside. Called
-- for those that are large on the disk; a smaller one that is large when it is read is set aside by whoever claimed it.
create or replace function redrive.within_limit(p_value jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(p_value::text) > 1048576 then
    raise exception 'a payload is % bytes, over the limit of 1,048,576', octet_length(p_value::text) using
      errcode = 'invalid_parameter_value';
  end if;
  return p_value;
end $$;

-- Claim up to p_want ready tasks of p_queues in order. A row of nulls means: there may be more, look again at once. The p_seg_* columns say where to start in each lane and
-- priority range: entries before that were claimed long ago and may still lie in the index, dead.
create or replace function redrive.claim(
  p_worker text, p_token uuid, p_lease double precision, p_want integer, p_queues text[], p_handles text[], p_only text,
  p_wait boolean, p_seg_queue text[], p_seg_lane text[], p_seg_priority integer[], p_seg_position bigint[],
  p_seg_until integer[]
) returns setof redrive.claimed
language plpgsql as $$
declare
  v_queues text[] := p_queues;
  v_lanes text[];
  v_closed text[];
  v_groups text[];
  v_picked tid[];
  v_set_aside boolean;
  v_passed_by boolean := false;
  v_contended boolean := false;
  v_left integer := p_want;
  v_got integer;
begin
  -- Limits and holds change under the exclusive lock: from the next statement on they are seen whole.
  lock table redrive.move_lock in row share mode;
  if exists (select 1 from redrive.hold) then
    v_queues := array(
      select u.q from unnest(p_queues) with ordinality u(q, o)
      where not exists (select 1 from redrive.hold h where h.target = 'queue' and h.name = u.q) order by u.o);
    select array_agg(h.name) filter (where h.target = 'group'), array_agg(h.name) filter (where h.target = 'kind')
    into v_groups, v_closed from redrive.hold h;
  end if;

  v_lanes := array(select k.kind from redrive.kind k);
  if v_groups is null and p_handles is null and p_only is null and (v_lanes = '{}' or redrive.open_lanes(v_queues, null, null,
    v_closed, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until) = '{}') then
    -- Nothing but the open lane has anything to give: one statement.
    return query
    with picked as (
      update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = p_token,
        lease_expires_at = clock_timestamp() + make_interval(secs => p_lease), last_attempt_at = clock_timestamp(),
        worker_id = p_worker
      where t.ctid = any (array(
        select r.ctid from unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
          s(queue, lane, priority, pos, until)
        cross join lateral (
          select c.ctid from redrive.task c
          where c.state = 'queued' and c.queue = s.queue and c.lane = ''
            and (c.priority, c.position) >= (s.priority, s.pos) and c.priority <= s.until
          order by c.priority, c.position limit p_want for update skip locked
        ) r
        where s.lane = '' and s.queue = any (v_queues) limit p_want)) and t.kind <> all (v_lanes)
      returning t.*
    ), tally as (
      insert into redrive.total_delta (queue, kind, queued, running)
      select p.queue, p.kind, -count(*), count(*) from picked p group by p.queue, p.kind
    ), retries as (
      insert into redrive.retry_delta (bulk_id, outcome, n)
      select p.last_replayed_bulk_id, 'running', count(*) from picked p where p.last_replayed_bulk_id is not null group by 1
    )
    select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
      p.max_attempts::integer, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
      coalesce(p.trace_parent, p.trace_id::text), p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
      -- As numbers: times that are infinite cannot be subtracted.
      case when p.settled_token is null and p.attempt_count = 1 then greatest(0, least(1e9, date_part('epoch', p.last_attempt_at)
        - date_part('epoch', greatest(p.created_at, p.run_at, p.last_replayed_at)))) end
    from picked p order by array_position(v_queues, p.queue), p.priority, p.position;
    get diagnostics v_got = row_count;
    v_left := v_left - v_got;
    -- What is still there is locked by others or belongs into a lane by now: that is for the careful half.
    if v_left <= 0 or v_lanes = '{}' or not exists (
      select 1 from unnest(p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until)
        s(queue, lane, priority, pos, until)
      cross join lateral (
        select 1 from redrive.task c
        where c.state = 'queued' and c.queue = s.queue and c.lane = ''
          and (c.priority, c.position) >= (s.priority, s.pos) and c.priority <= s.until
        limit 1
      ) r
      where s.lane = '' and s.queue = any (v_queues)
    ) then
      return;
    end if;
  end if;

  for i in 1..5 loop
    select c.picked, c.set_aside, c.passed_by, c.contended into v_picked, v_set_aside, v_passed_by, v_contended
    from redrive.candidates(v_left, case when i = 1 then v_left else greatest(v_left, 2000) end, p_wait, v_queues, p_handles,
      p_only, v_closed, v_groups, p_seg_queue, p_seg_lane, p_seg_priority, p_seg_position, p_seg_until) c;
    if v_picked is not null then
      return query
      with picked as (
        update redrive.task t set state = 'running', attempt_count = t.attempt_count + 1, lease_token = p_token,
          lease_expires_at = clock_timestamp() + make_interval(secs => p_lease), last_attempt_at = clock_timestamp(),
          worker_id = p_worker
        where t.ctid = any (v_picked)
        returning t.*
      ), tally as (
        insert into redrive.total_delta (queue, kind, queued, running)
        select p.queue, p.kind, -count(*), count(*) from picked p group by p.queue, p.kind
      ), retries as (
        insert into redrive.retry_delta (bulk_id, outcome, n)
        select p.last_replayed_bulk_id, 'running', count(*) from picked p where p.last_replayed_bulk_id is not null group by 1
      ), places as (
        update redrive.kind k set running = k.running + case when k.concurrency is null then 0 else n.n end,
          next_at = case when k.rate_ms is null then null else clock_timestamp() + k.rate_ms * interval '1 ms' end
        from (select p.kind, count(*)::integer as n from picked p group by p.kind) n
        where k.kind = n.kind and (k.concurrency is not null or k.rate_ms is not null)
      ), probes as (
        update redrive.circuit c set probe = p.id, token = p_token
        from picked p join redrive.kind k on k.kind = p.kind where c.name = k.circuit
      )
      select p.id, p.kind::text, p.queue::text, p.lane, p.priority, p.position,
      case when pg_column_size(p.payload) > 262144 then redrive.within_limit(p.payload) else p.payload::jsonb end, p.attempt_count,
        p.max_attempts::integer, greatest(least(p.created_at, '9900-01-01+00'), '0100-01-01+00'), p.task_group::text, p.scope::text,
        coalesce(p.trace_parent, p.trace_id::text), p.idempotency_key::text, p.timeout_ms::integer, p.memo, p.replay_count, p.feature, p.join_id,
      -- As numbers: times that are infinite cannot be subtracted.
      case when p.settled_token is null and p.attempt_count = 1 then greatest(0, least(1e9, date_part('epoch', p.last_attempt_at)
        - date_part('epoch', greatest(p.created_at, p.run_at, p.last_replayed_at)))) end
      from picked p order by array_position(v_queues, p.queue), p.priority, p.position;
      get diagnostics v_got = row_count;
      v_left := v_left - v_got;
    end if;
    -- Rows that were set aside or are locked by others may have hidden more behind them: look again, and further.
    exit when v_left <= 0 or not (v_set_aside or v_contended);
  end loop;
  if v_left > 0 and (v_set_aside or v_passed_by or v_contended) then return next null::redrive.claimed; end if;
end $$;

-- functions/complete.sql

-- Completion, the common end: rows leave for history. Answers the ids that were completed; the rest lost their lease.
-- No "state = 'running'" here: the planner would read the lease index, dead entries and all. A token exists only
-- while a task runs, so the token alone is the fence. Tasks that a feature reacts to are moved by "move".
-- p_keep: seconds that a task is kept in history; null: as long as all others, 0: it leaves nothing.
create or replace function redrive.complete(p_ids uuid[], p_tokens uuid[], p_ms real[], p_results jsonb[],
  p_keep double precision[] default null) returns uuid[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_done uuid[];
  v_kinds text[];
  v_joins uuid[];
  v_retries text[];
begin
  lock table redrive.move_lock in row share mode;
  with done as (
    delete from redrive.task t
    where t.id = any (p_ids) and ((t.id, t.lease_token) in (select u.i, u.k from unnest(p_ids, p_tokens) u(i, k))) is true
      and t.feature is null
    returning t.*
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, result, expires_at, join_id)
    select d.id, clock_timestamp(), d.created_at, d.last_attempt_at, d.lease_token, v.ms, 'completed',
      d.attempt_count, d.max_attempts, d.replay_count, d.timeout_ms, d.priority, d.kind, d.queue, d.task_group, d.scope,
      d.trace_id, d.idempotency_key, d.worker_id, v.result,
      case when v.keep is not null then clock_timestamp() + make_interval(secs => v.keep) end, d.join_id
    from done d join unnest(p_ids, p_tokens, p_ms, p_results, p_keep) v(id, token, ms, result, keep)
      on v.id = d.id and v.token = d.lease_token
    where v.keep is distinct from 0
  ), tally as (
    insert into redrive.total_delta (queue, kind, running, completed)
    select d.queue, d.kind, -count(*), count(*) from done d group by d.queue, d.kind
  )
  select array_agg(d.id), array_agg(d.kind), array_agg(d.join_id) filter (where d.join_id is not null),
    array_agg(d.last_replayed_bulk_id) filter (where d.last_replayed_bulk_id is not null)
  into v_done, v_kinds, v_joins, v_retries from done d;
  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_joins is not null then
    perform redrive.arrive(v_joins, null, array_fill('completed'::redrive.state, array[cardinality(v_joins)]));
  end if;
  if v_retries is not null then
    insert into redrive.retry_delta (bulk_id, outcome, n)
    select r.bulk_id, o.outcome, o.sign * count(*) from unnest(v_retries) r(bulk_id)
    cross join (values ('running', -1), ('completed', 1)) o(outcome, sign) group by r.bulk_id, o.outcome, o.sign;
  end if;
  return v_done;
end $$;

-- functions/failure_groups.sql

-- The cause that a failure is counted under: its own, or, where there is none yet, the one that an earlier version of the
-- algorithm has made for the same cause, so that its notes, mutes and owner stay. Where a newer algorithm takes several for
-- one, that is the one which was found first for it ("alias"); but one of which somebody has said something goes on by itself,
-- whatever its new name: a mute or an owner is of what was known by its old one, and of nothing else.
create or replace function redrive.cause_of(p_fingerprint text, p_former jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((
    select n.name from (
      select f.name, -3::bigint as nth from jsonb_array_elements_text(p_former) f(name)
      where exists (select 1 from redrive.record r where r.collection = 'cause' and r.id = f.name)
      union all select p_fingerprint, -2
      union all (select g.fingerprint, -1 from redrive.failure_group g where g.alias = p_fingerprint order by g.first_seen, 1 limit 1)
      union all (select d.fingerprint, 0 from redrive.failure_delta d where d.alias = p_fingerprint order by d.at, 1 limit 1)
      union all select f.name, f.nth from jsonb_array_elements_text(p_former) with ordinality f(name, nth)) n
    where exists (select 1 from redrive.failure_group g where g.fingerprint = n.name)
      or exists (select 1 from redrive.failure_delta d where d.fingerprint = n.name)
    order by n.nth limit 1), p_fingerprint)
$$;

create or replace function redrive.with_known_causes(p_moves jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_agg(case when c.name <> x.move ->> 'fingerprint'
      then x.move || jsonb_build_object('fingerprint', c.name) || case
        when exists (select 1 from redrive.record r where r.collection = 'cause' and r.id = c.name) then '{}'::jsonb
        else jsonb_build_object('alias', x.move ->> 'fingerprint') end
      else x.move end order by x.nth)
  from jsonb_array_elements(p_moves) with ordinality x(move, nth)
  left join lateral (
    select redrive.cause_of(x.move ->> 'fingerprint', x.move -> 'former') as name where x.move ? 'former') c on true
$$;

-- functions/move.sql

-- Every other transition, as decided by the state machine: requeue, fail, cancel, pause, resume, retry by an operator.
-- Each element is applied if the row is in one of its source states and the fence holds. Returns the ids moved, and what is
-- known about those that a feature reacts to (the caller does, in this transaction). If there are any, members of joins have
-- not arrived yet: the caller says so when the features have added theirs ("arrive_now"). Tasks of features that are not
-- among p_features are left to a process that knows them, unless the move is a quiet one. "instead": by id, where moves led
-- that met something in their row and so led elsewhere than asked.
create or replace function redrive.move(p_moves jsonb, p_features text[] default '{}', out moved uuid[], out landed jsonb,
  out members jsonb, out instead jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_kinds text[];
  v_due jsonb;
  v_wake jsonb;
  v_revived record;
begin
  lock table redrive.move_lock in row share mode;
  if p_moves @? '$[*].former' then p_moves := redrive.with_known_causes(p_moves); end if;
  with v as materialized (
    select * from jsonb_to_recordset(p_moves) x(
      id uuid, token uuid, fenced boolean, expired boolean, sources text[], event text, target redrive.state,
      delay double precision, attempts text, memo jsonb, result jsonb, ms real, code text, cause text, type text,
      message text, stack text, fingerprint text, summary jsonb, dead text, actor text, action text, reason text, bulk_id text,
      seen bigint, keep double precision, quiet boolean, if_cancel_requested redrive.state, if_early redrive.state, death boolean,
      forgotten boolean, alias text, peer text, cut_off boolean)
  ), l as materialized (
    -- Locked in the order of their ids, so that two moves over the same rows cannot deadlock.
    select t.* from redrive.task t where t.id = any (array(select v.id from v)) order by t.id for update
  ), ok as materialized (
    select v.*, l.state as was, l.queue, l.kind, l.scope, l.attempt_count, l.replay_count, l.worker_id, l.max_attempts,
      l.task_group, l.trace_id, l.feature, l.facts, l.join_id, l.last_replayed_bulk_id as retried_by,
      f.final
    from v join l on l.id = v.id
    -- Where each move leads, by what it meets in the row: as the machine says (INSTEAD), which wrote it into the move.
    cross join lateral (select coalesce(
      case when l.cancel_requested_at is not null then v.if_cancel_requested end,
      case when l.next_attempt_at > v_now then v.if_early end, v.target) as final) f
    where l.state::text = any (v.sources) and (not v.fenced or l.lease_token = v.token)
      and (not v.expired or l.lease_expires_at <= v_now) and (v.seen is null or l.failed_seq is not distinct from v.seen)
      and (l.feature is null or l.feature = any (p_features) or v.quiet) and f.final <> l.state
  ), retired as (
    delete from redrive.task t using ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final in ('completed', 'cancelled')))
    returning t.*, ok.event, ok.final, ok.ms, ok.result, ok.reason, ok.keep,
      ok.final = 'cancelled' and ok.forgotten is true as forgotten
  ), kept as (
    insert into redrive.history (id, finished_at, created_at, last_attempt_at, lease_token, execution_ms, state,
      attempt_count, max_attempts, replay_count, timeout_ms, priority, kind, queue, task_group, scope, trace_id,
      idempotency_key, worker_id, cancel_reason, payload, result, expires_at, feature, facts, join_id, trace_parent, forgotten)
    select r.id, v_now, r.created_at, r.last_attempt_at, case when r.event <> 'expire' then r.lease_token end, r.ms, r.final,
      r.attempt_count, r.max_attempts, r.replay_count, r.timeout_ms, r.priority, r.kind, r.queue, r.task_group, r.scope,
      r.trace_id, r.idempotency_key, r.worker_id, r.reason, case when r.final = 'cancelled' then r.payload end, r.result,
      case when r.keep is not null then v_now + make_interval(secs => r.keep) end, r.feature, r.facts, r.join_id,
      case when r.final = 'cancelled' then r.trace_parent end, r.forgotten
    from retired r where r.final <> 'completed' or r.keep is distinct from 0
  ), stayed as (
    update redrive.task t set
      state = ok.final,
      position = case when ok.final = 'queued' then nextval('redrive.position') else t.position end,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), ''),
      next_attempt_at = case
        when ok.event in ('pause', 'resume') and ok.final <> 'queued' then t.next_attempt_at
        when ok.final = 'delayed' then v_now + make_interval(secs => ok.delay) end,
      -- A worker that was lost uses up no attempt of what it had: another one is allowed in its place.
      -- What died with its worker before an attempt that a worker lived through is given back: deaths count in a row.
      deaths = case when ok.event in ('redrive', 'snooze', 'retry') then 0 when ok.death then t.deaths + 1 else t.deaths end,
      cut_offs = case when ok.event in ('redrive', 'snooze', 'retry') then 0 when ok.cut_off then t.cut_offs + 1 else t.cut_offs end,
      apart = false,
      max_attempts = case when ok.event in ('redrive', 'snooze', 'retry') then greatest(t.max_attempts - t.deaths, 1)
        when ok.death then least(t.max_attempts + 1, 1000000) else t.max_attempts end,
      attempt_count = case ok.attempts when '-1' then greatest(t.attempt_count - 1 - case when ok.event = 'snooze' then t.deaths else 0 end, 0)
        when 'reset' then 0 else t.attempt_count - case when ok.event = 'retry' then t.deaths else 0 end end,
      lease_token = null, lease_expires_at = null, worker_id = null, cancel_requested_at = null,
      settled_token = case when ok.fenced and ok.event <> 'expire' then ok.token else t.settled_token end,
      paused_by = case when ok.final = 'paused' then ok.actor end,
      memo = case when ok.event = 'redrive' then null else coalesce(ok.memo, t.memo) end,
      progress = case when ok.event in ('redrive', 'retry', 'expire') then null else t.progress end,
      error_code = case when ok.event = 'redrive' then null else coalesce(ok.code, t.error_code) end,
      error_reason = case when ok.event = 'redrive' then null else coalesce(ok.cause, t.error_reason) end,
      failure_type = case when ok.event = 'redrive' then null else coalesce(ok.type, t.failure_type) end,
      error_message = case when ok.event = 'redrive' then null else coalesce(ok.message, t.error_message) end,
      error_stack = case when ok.event = 'redrive' then null when ok.code is null then t.error_stack else ok.stack end,
      error_fingerprint = case when ok.event = 'redrive' then null else coalesce(ok.fingerprint, t.error_fingerprint) end,
      error_summary = case when ok.event = 'redrive' then null when ok.code is null then t.error_summary else ok.summary end,
      failed_at = case when ok.final = 'failed' then v_now end,
      failed_seq = case when ok.final = 'failed' then nextval('redrive.failed_seq') end,
      dead_reason = case when ok.final = 'failed' then ok.dead end,
      replay_count = t.replay_count + case when ok.event = 'redrive' then 1 else 0 end,
      last_replayed_at = case when ok.event = 'redrive' then v_now else t.last_replayed_at end,
      last_replayed_by = case when ok.event = 'redrive' then ok.actor else t.last_replayed_by end,
      last_replayed_reason = case when ok.event = 'redrive' then ok.reason else t.last_replayed_reason end,
      last_replayed_bulk_id = case when ok.event = 'redrive' then ok.bulk_id else t.last_replayed_bulk_id end
    from ok
    where t.id = ok.id and t.id = any (array(select o.id from ok o where o.final not in ('completed', 'cancelled')))
    returning t.*, ok.dead
  ), tries as (
    insert into redrive.attempt (task_id, at, lease_token, execution_ms, attempt, replay, code, reason, failure_type,
      message, stack, fingerprint, worker_id, error_summary, peer, build)
    select o.id, v_now, case when o.event <> 'expire' then o.token end, o.ms, o.attempt_count, o.replay_count, o.code, o.cause, o.type, o.message, o.stack,
      o.fingerprint, o.worker_id, o.summary, o.peer, (select w.build from redrive.worker w where w.id = o.worker_id)
    from ok o where o.code is not null
  ), letters as (
    insert into redrive.dead_letter (task_id, dead_at, attempt_count, max_attempts, replay_count, reason, kind, queue,
      task_group, scope, trace_id, payload, error_code, error_reason, failure_type, error_message, error_fingerprint,
      error_summary)
    select m.id, v_now, m.attempt_count, m.max_attempts, m.replay_count, m.dead, m.kind, m.queue, m.task_group, m.scope,
      m.trace_id, m.payload, m.error_code, m.error_reason, m.failure_type, m.error_message, m.error_fingerprint, m.error_summary
    from stayed m where m.dead is not null
  ), causes as (
    insert into redrive.failure_delta (fingerprint, n, code, reason, failure_type, message, kind, sample_task, sample_scope,
      at, error_summary, alias)
    -- All of one row, the first: a message beside the sample of another task would be judged by the wrong payload.
    select x.fingerprint, x.n, x.code, x.cause, x.type, x.message, x.kind, x.id, x.scope, v_now, x.summary, x.alias
    from (
      select o.*, count(*) over (partition by o.fingerprint, o.kind) as n,
        row_number() over (partition by o.fingerprint, o.kind order by o.id) as nth
      from ok o where o.code is not null
    ) x where x.nth = 1
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, delayed, running, paused, failed, completed, cancelled,
      dead_letters, forgotten)
    select x.queue, x.kind, sum(x.n) filter (where x.state = 'queued'), sum(x.n) filter (where x.state = 'delayed'),
      sum(x.n) filter (where x.state = 'running'), sum(x.n) filter (where x.state = 'paused'),
      sum(x.n) filter (where x.state = 'failed'), sum(x.n) filter (where x.state = 'completed'),
      sum(x.n) filter (where x.state = 'cancelled'), sum(x.letters), sum(x.forgotten)
    from (
      select o.queue, o.kind, o.was as state, -1 as n, 0 as letters, 0 as forgotten from ok o
      union all
      select o.queue, o.kind, o.final, 1, case when o.dead is not null and o.final not in ('completed', 'cancelled') then 1 else 0 end,
        case when o.final = 'cancelled' and o.forgotten then 1 else 0 end
      from ok o
      -- one row for each state, so that no sum is null
      union all select distinct o.queue, o.kind, s.state, 0, 0, 0 from ok o cross join unnest(enum_range(null::redrive.state)) s(state)
    ) x group by x.queue, x.kind
  ), retries as (
    -- What became of tasks that a bulk retry brought back. One that has failed stays so for it, whatever is done with it later.
    insert into redrive.retry_delta (bulk_id, outcome, cause, n)
    select x.bulk_id, x.outcome, x.cause, sum(x.n) from ok o cross join lateral (values
      (case when o.event = 'redrive' then o.bulk_id end, 'retried', '', 1),
      (case when o.event = 'redrive' then o.retried_by end, 'again', '', 1),
      (case when o.was = 'running' then o.retried_by end, 'running', '', -1),
      (case when o.event <> 'redrive' and o.was <> 'failed' and o.final in ('completed', 'failed', 'cancelled') then o.retried_by end,
        o.final::text, case when o.final = 'failed' then coalesce(o.fingerprint, '') else '' end, 1)
    ) x(bulk_id, outcome, cause, n)
    where (o.retried_by is not null or o.event = 'redrive') and x.bulk_id is not null group by 1, 2, 3
  ), failing as (
    insert into redrive.failed_delta (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
      fingerprint, n)
    select x.kind, x.queue, coalesce(x.task_group, ''), x.error_code, x.error_reason, x.failure_type, x.dead_reason,
      x.error_fingerprint, sum(x.n)
    from (
      select m.kind, m.queue, m.task_group, m.error_code, m.error_reason, m.failure_type, m.dead_reason,
        m.error_fingerprint, 1 as n
      from stayed m where m.state = 'failed'
      union all
      select l.kind, l.queue, l.task_group, l.error_code, l.error_reason, l.failure_type, l.dead_reason,
        l.error_fingerprint, -1
      from ok o join l on l.id = o.id where o.was = 'failed'
    ) x group by x.kind, x.queue, x.task_group, x.error_code, x.error_reason, x.failure_type, x.dead_reason, x.error_fingerprint
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, bulk_id, kind, scope, trace_id, before, after)
    select v_now, o.actor, o.action, o.reason, o.id, o.bulk_id, l.kind, l.scope, l.trace_id,
      jsonb_build_object('state', o.was, 'attempt_count', o.attempt_count), jsonb_build_object('state', o.final)
    from ok o join l on l.id = o.id where o.actor is not null
  )
  select (select array_agg(o.id) from ok o),
    (select array_agg(o.kind) from ok o where o.was = 'running'),
    (select jsonb_object_agg(w.queue, w.due) from (
      select m.queue, min(m.next_attempt_at) as due from stayed m where m.state = 'delayed' group by m.queue) w),
    (select jsonb_object_agg(w.queue, w.position) from (
      select m.queue, min(m.position) as position from stayed m where m.state = 'queued' group by m.queue) w),
    (select jsonb_agg(jsonb_build_object('id', o.join_id, 'was', o.was, 'now', o.final)) from ok o where o.join_id is not null),
    (select jsonb_agg(redrive.landing(o.id, o.was, o.final, o.kind, o.queue, o.attempt_count, o.max_attempts, o.replay_count,
      o.task_group, o.scope, o.trace_id, o.feature, o.facts, o.join_id)) from ok o where o.feature is not null and o.quiet is not true),
    (select jsonb_object_agg(o.id, o.final) from ok o where o.final <> o.target)
  into moved, v_kinds, v_due, v_wake, members, landed, instead;

  if v_kinds is not null and exists (select 1 from redrive.kind) then perform redrive.free_places(v_kinds); end if;
  if v_wake is not null then
    perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
  end if;
  if v_due is not null then
    perform redrive.wake_due(w.key, w.value::timestamptz) from jsonb_each_text(v_due) w;
  end if;
  moved := coalesce(moved, '{}');
  if p_moves @? '$[*] ? (@.event == "redrive")' then
    select * into v_revived from redrive.revive(p_moves, moved, p_features);
    moved := moved || v_revived.revived;
    landed := coalesce(landed || v_revived.landed, landed, v_revived.landed);
    members := coalesce(members || v_revived.members, members, v_revived.members);
  end if;
  if members is not null and landed is null then
    perform redrive.arrive_now(members);
    members := null;
  end if;
end $$;

-- What a reaction is told about a task.
create or replace function redrive.landing(p_id uuid, p_was redrive.state, p_now redrive.state, p_kind text, p_queue text, p_attempts integer,
  p_max_attempts integer, p_replays integer, p_group text, p_scope text, p_trace text, p_feature text, p_facts jsonb, p_join uuid) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('id', p_id, 'was', p_was, 'state', p_now, 'kind', p_kind, 'queue', p_queue, 'attempts', p_attempts,
    'max_attempts', p_max_attempts, 'replays', p_replays, 'group', p_group, 'scope', p_scope, 'trace_id', p_trace,
    'feature', p_feature, 'facts', p_facts, 'join', p_join)
$$;

-- functions/revive.sql

-- An operator's retry of a cancelled task: back from history into the live table. An id may be in history more than once
-- (a caller's own, used again): its newest row counts, and none while a live task has it.
create or replace function redrive.revive(p_moves jsonb, p_moved uuid[], p_features text[], out revived uuid[], out landed jsonb,
  out members jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_ids uuid[] := array(
    select x.id from jsonb_to_recordset(p_moves) x(id uuid, event text, seen bigint)
    where x.event = 'redrive' and x.seen is null and x.id <> all (p_moved));
begin
  if cardinality(v_ids) = 0 then
    revived := '{}';
    return;
  end if;
  with newest as materialized (
    select distinct on (h.id) h.id, h.tableoid as part, h.ctid as place from redrive.history h
    where h.id = any (v_ids) and not exists (select 1 from redrive.task t where t.id = h.id)
    order by h.id, h.finished_at desc
  ), old as (
    delete from redrive.history h using newest n
    where h.id = n.id and h.tableoid = n.part and h.ctid = n.place and h.state = 'cancelled' and h.erased_at is null
      and (h.feature is null or h.feature = any (p_features)) returning h.*
  ), new as (
    insert into redrive.task (id, created_at, position, state, max_attempts, timeout_ms, priority, kind, queue, lane,
      task_group, scope, trace_id, idempotency_key, payload, replay_count, last_replayed_at, last_replayed_by,
      last_replayed_reason, last_replayed_bulk_id, feature, facts, join_id, trace_parent)
    select o.id, o.created_at, nextval('redrive.position'), 'queued', o.max_attempts, o.timeout_ms, o.priority, o.kind,
      o.queue, coalesce((select k.kind from redrive.kind k where k.kind = o.kind), ''), o.task_group, o.scope, o.trace_id,
      o.idempotency_key, o.payload, o.replay_count + 1, v_now, x.actor, x.reason, x.bulk_id,
      o.feature, o.facts, o.join_id, o.trace_parent
    from old o join jsonb_to_recordset(p_moves) x(id uuid, actor text, reason text, bulk_id text) on x.id = o.id
    returning task.*
  ), tally as (
    insert into redrive.total_delta (queue, kind, queued, cancelled, forgotten)
    select o.queue, o.kind, count(*), -count(*), -count(*) filter (where o.forgotten) from old o group by o.queue, o.kind
  ), retries as (
    insert into redrive.retry_delta (bulk_id, outcome, n)
    select n.last_replayed_bulk_id, 'retried', count(*) from new n where n.last_replayed_bulk_id is not null group by 1
  ), audited as (
    insert into redrive.audit (at, actor, action, reason, task_id, bulk_id, kind, scope, trace_id, before, after)
    select v_now, x.actor, x.action, x.reason, n.id, x.bulk_id, n.kind, n.scope, n.trace_id, '{"state": "cancelled"}', '{"state": "queued"}'
    from new n join jsonb_to_recordset(p_moves) x(id uuid, actor text, action text, reason text, bulk_id text) on x.id = n.id
    where x.actor is not null
  ), woken as (
    select redrive.wake(n.queue, min(n.position)) from new n group by n.queue
  )
  select coalesce(array_agg(n.id), '{}'), 
    jsonb_agg(jsonb_build_object('id', n.join_id, 'was', 'cancelled', 'now', 'queued')) filter (where n.join_id is not null),
    jsonb_agg(redrive.landing(n.id, 'cancelled', 'queued', n.kind, n.queue, n.attempt_count, n.max_attempts, n.replay_count,
      n.task_group, n.scope, n.trace_id, n.feature, n.facts, n.join_id)) filter (where n.feature is not null)
  into revived, members, landed from new n cross join (select count(*) from woken) w;
end $$;

-- functions/tick.sql

-- A worker's beat. Promotes what is due in its queues, hands out duties (each to one worker of the fleet per interval), and answers
-- which of the worker's tasks somebody wants cancelled and in how many seconds something will be due.
-- p_from: nothing due or expired lies before it, as far as an earlier tick saw (checked_to); index entries of long
-- promoted and settled rows may, and are not walked again.
create or replace function redrive.tick(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_stopping boolean, p_duties text[], p_every double precision[], p_from timestamptz, p_limit integer, p_beat_ms integer,
  p_features text[] default '{}', p_while_duties text[] default '{}', p_while_collections text[] default '{}',
  p_while_states text[] default '{}', p_sheet_id text default null, p_sheet text default null
) returns table (duties text[], cancels uuid[], next_due double precision, promoted integer, checked_to timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_from constant timestamptz := coalesce(p_from, '-infinity');
  v_expired boolean;
  v_back integer := 0;
begin
  -- A write a few times a minute is enough to be seen alive.
  update redrive.worker w set seen_at = v_now, running = p_running, stopping = p_stopping,
    -- Back from a gap, it ticks before it beats; the gap is one all the same.
    beating_since = case when w.seen_at < v_now - make_interval(secs => 2 * w.beats_ms / 1000.0) then v_now else w.beating_since end
  where w.id = p_worker and (w.seen_at < v_now - interval '4 s' or w.stopping <> p_stopping
    or (p_stopping and w.running <> p_running));
  if not found and not exists (
    select 1 from redrive.worker w where w.id = p_worker and w.host = p_host and w.pid = p_pid and w.queues = p_queues)
  then
    insert into redrive.worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms)
    values (p_worker, p_host, p_pid, p_queues, p_concurrency, p_running, p_version, v_now, v_now, p_stopping, p_beat_ms)
    -- Another process under the same name.
    on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues,
      concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
      started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
      beat_ms = excluded.beat_ms,
      -- Whether it beats apart from its ticks, its first beat will say.
      beats_ms = null, beating_since = null, machine = null, birth = null, dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
  end if;
  if p_sheet_id is not null then
    -- Sent again because the answer was lost, it is the one that was taken last.
    update redrive.worker w set sheet_id = p_sheet_id where w.id = p_worker and w.sheet_id is distinct from p_sheet_id;
    if found then insert into redrive.series_sheet (at, document) values (v_now, p_sheet); end if;
  end if;

  if exists (select 1 from unnest(p_duties) u(name) where not exists (select 1 from redrive.duty d where d.name = u.name)) then
    insert into redrive.duty (name, next_at) select u.name, v_now from unnest(p_duties) u(name) on conflict do nothing;
  end if;
  with won as (
    select d.name from redrive.duty d where d.name = any (p_duties) and (d.next_at <= v_now
      -- further ahead than its interval (and a minute, for a tick that has waited): by a clock that was wrong
      or d.next_at > v_now + make_interval(secs => 60 + (select u.every from unnest(p_duties, p_every) u(name, every) where u.name = d.name)))
    for update skip locked
  ), taken as (
    update redrive.duty d set next_at = v_now + make_interval(secs => u.every)
    from unnest(p_duties, p_every) u(name, every)
    where d.name = u.name and d.name = any (array(select w.name from won w))
    returning d.name
  )
  select array_agg(t.name) into duties from taken t;
  -- Do not send a worker on an errand with nothing to do.
  v_expired := exists (
    select 1 from redrive.task t
    where t.state = 'running' and t.lease_expires_at <= v_now and t.lease_expires_at >= v_from
      and (t.feature is null or t.feature = any (p_features)));
  if not v_expired then
    duties := array(select d.name from unnest(duties) d(name) where d.name <> 'recover' and d.name not like 'recover:%');
  end if;
  if not exists (select 1 from redrive.total_delta) and not exists (select 1 from redrive.failure_delta)
    and not exists (select 1 from redrive.failed_delta) and not exists (select 1 from redrive.join_delta) then
    duties := array_remove(duties, 'fold');
  end if;
  duties := array(
    select d.name from unnest(duties) d(name) where not exists (
      select 1 from unnest(p_while_duties, p_while_collections, p_while_states) w(name, collection, state)
      where w.name = d.name
        and not exists (select 1 from redrive.record r where r.collection = w.collection and r.state = w.state)));
  if exists (select 1 from redrive.schedule s where s.next_at <= v_now or s.last_at > v_now + interval '1 min') then duties := duties || array['cron']; end if;

  promoted := redrive.promote(p_queues, v_from, p_limit);
  if exists (select 1 from redrive.resuming) then
    v_back := redrive.resume_groups(p_limit);
  end if;
  -- A minute back, for transactions that commit late; what is later still is found by a tick without p_from.
  checked_to := case when promoted < p_limit and not v_expired then v_now - interval '1 min' end;

  cancels := array(
    select t.id from redrive.task t
    where t.worker_id = p_worker and t.cancel_requested_at is not null and (t.state = 'running') is true);
  -- What is overdue now is locked by someone who is at it, or comes with the next call.
  next_due := case when promoted >= p_limit or v_back >= p_limit then 0 else extract(epoch from least(
    (select min(r.next_attempt_at) from unnest(p_queues) q(queue) cross join lateral (
      select t.next_attempt_at from redrive.task t
      where t.state = 'delayed' and t.queue = q.queue and t.next_attempt_at > v_now
      order by t.next_attempt_at limit 1) r),
    (select min(s.next_at) from redrive.schedule s where s.next_at > v_now),
    (select min(k.next_at) from redrive.kind k where k.rate_ms is not null and k.next_at > v_now),
    (select min(c.until) from redrive.circuit c where c.open and c.until > v_now)) - clock_timestamp()) end;
  promoted := promoted + v_back;
  return next;
end $$;

-- Which build of the application a worker runs: what fails from now on is known to be of it.
create or replace function redrive.note_build(p_worker text, p_build text) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update redrive.worker w set build = p_build where w.id = p_worker and w.build is distinct from p_build
$$;

-- functions/beat.sql

-- A worker's own beat, which comes apart from its ticks and from what it runs. "silent_in": seconds until somebody may be judged,
-- if that is before the next beat. "declared": it had been declared dead. "drain": somebody has asked it to end. "neighbours": the
-- other workers whose processes this one can look for: pid, birth, seconds since its last beat and between two of them. p_age: seconds since this process became a worker, so that whatever was
-- claimed under its name before then is another process's. p_machine, p_birth: where a pid means the same process, and which of
-- those that had this pid it is; null where the system does not tell.
create or replace function redrive.worker_beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_age double precision, p_tick_ms integer, p_beats_ms integer, p_stalled_ms integer, p_dead_after_ms integer, p_lease_ms integer,
  p_machine text, p_birth bigint,
  out silent_in double precision, out declared boolean, out drain boolean, out neighbours jsonb
) language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_started constant timestamptz := v_now - make_interval(secs => p_age);
  v_row redrive.worker;
begin
  select w.* into v_row from redrive.worker w where w.id = p_worker for no key update;
  -- In containers host and pid are often the same for the next process.
  if found and v_row.host = p_host and v_row.pid = p_pid
    and coalesce(v_row.machine = p_machine, true) and coalesce(v_row.birth = p_birth, true) then
    declared := v_row.dead_at is not null;
    update redrive.worker w set seen_at = v_now, running = p_running, started_at = least(w.started_at, v_started),
      beats_ms = p_beats_ms, stalled_ms = p_stalled_ms, dead_at = null, machine = p_machine, birth = p_birth,
      -- Two beats late, it may have been cut off, and others with it: it cannot tell who was silent.
      beating_since = case when w.beats_ms is null or w.beating_since > v_now
        or w.seen_at < v_now - make_interval(secs => 2 * p_beats_ms / 1000.0) then v_now else w.beating_since end
    where w.id = p_worker;
    drain := v_row.drain_at is not null;
  else
    insert into redrive.worker (id, host, pid, queues, concurrency, running, version, started_at, seen_at, stopping, beat_ms,
      beats_ms, beating_since, stalled_ms, machine, birth)
    values (p_worker, p_host, p_pid, p_queues, p_concurrency, p_running, p_version, v_started, v_now, false, p_tick_ms,
      p_beats_ms, v_now, p_stalled_ms, p_machine, p_birth)
    -- Another process under the same name.
    on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues,
      concurrency = excluded.concurrency, running = excluded.running, version = excluded.version,
      started_at = excluded.started_at, seen_at = excluded.seen_at, stopping = excluded.stopping,
      beat_ms = excluded.beat_ms, beats_ms = excluded.beats_ms, beating_since = excluded.beating_since,
      stalled_ms = excluded.stalled_ms, machine = excluded.machine, birth = excluded.birth,
      dead_at = null, drain_at = null, drain_by = null, drain_reason = null;
    declared := false;
    drain := false;
  end if;
  silent_in := (
    select extract(epoch from s.judged_at - v_now) from redrive.silent(p_worker, p_dead_after_ms, p_lease_ms, v_now) s
    where s.judged_at <= v_now + make_interval(secs => p_beats_ms / 1000.0));
  -- What another process had under this name, which is silent if nobody has taken the name back for so long.
  if p_age <= (p_dead_after_ms + p_lease_ms) / 1000.0 and redrive.left_behind(p_worker, v_now) then
    silent_in := least(silent_in, greatest(p_dead_after_ms, 3 * p_beats_ms) / 1000.0 - (
      select extract(epoch from v_now - greatest(w.started_at, w.beating_since)) from redrive.worker w where w.id = p_worker));
  end if;
  neighbours := (
    select jsonb_object_agg(w.id, jsonb_build_array(w.pid, w.birth, extract(epoch from v_now - w.seen_at), w.beats_ms / 1000.0))
    from redrive.worker w
    where w.machine = p_machine and w.host = p_host and w.birth is not null and w.beats_ms is not null and w.id <> p_worker
      and w.dead_at is null and not (w.stopping and w.running = 0)
      and w.seen_at > v_now - make_interval(secs => (p_dead_after_ms + p_lease_ms) / 1000.0));
end $$;

-- The same, of workers that do not say which process they are.
create or replace function redrive.beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_age double precision, p_tick_ms integer, p_beats_ms integer, p_stalled_ms integer, p_dead_after_ms integer, p_lease_ms integer,
  out silent_in double precision, out declared boolean, out drain boolean
) language sql security definer set search_path = pg_catalog, pg_temp as $$
  select b.silent_in, b.declared, b.drain from redrive.worker_beat(p_worker, p_host, p_pid, p_queues, p_concurrency, p_running,
    p_version, p_age, p_tick_ms, p_beats_ms, p_stalled_ms, p_dead_after_ms, p_lease_ms, null, null) b
$$;

-- Who counts when it is judged who is silent, and from when on each of them would be: those that beat apart from their loop
-- and were not declared dead, but for those that have said goodbye. What somebody had who was last seen longer ago than a
-- lease lasts is free already.
create or replace function redrive.fleet(p_dead_after_ms integer, p_lease_ms integer, p_now timestamptz)
returns table (id text, silent_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select w.id, w.seen_at + make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0) from redrive.worker w
  where w.beats_ms is not null and w.dead_at is null and not (w.stopping and w.running = 0)
    and w.seen_at > p_now - make_interval(secs => (p_dead_after_ms + p_lease_ms) / 1000.0)
$$;

-- Who of the fleet is silent, and from when on this worker may declare them dead ("judged_at"; while nobody is silent, when
-- somebody will be). As a rule as soon as it has itself beaten without a gap for as long as silence takes. But where those who
-- may have been cut off (two beats late by now, or back from a gap only since then) are more than those who have been heard all
-- that time, it may be the network ("cut_off"): then four times that long must have passed since each of them was heard and
-- since the judge's beats began, so that nobody is taken for dead who was away for a while, be it the first of many to be
-- missed or the last of many to come back. Each by itself: one that dies again and again must not put off what becomes of the
-- others. Those who were declared dead in that way count for as long again, or the last of them would be taken for the only
-- one. The same for SQLite: stores/sqlite/beat.py.
create or replace function redrive.silent(p_worker text, p_dead_after_ms integer, p_lease_ms integer, p_now timestamptz,
  out ids text[], out judged_at timestamptz, out cut_off boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select case when g.few then g.silent else g.long_silent end,
    case when g.silent is null then g.next when g.few then greatest(g.next, g.since + g.patience)
      else greatest(g.heard, g.since) + 4 * g.patience end, g.silent is not null and not g.few
  from (
    select p.patience, array_agg(f.id) filter (where f.silent_at <= p_now) as silent,
      array_agg(f.id) filter (where f.silent_at <= p_now and w.seen_at <= p_now - 4 * p.patience) as long_silent,
      min(f.silent_at) filter (where f.id <> p_worker) as next,
      min(w.seen_at) filter (where f.silent_at <= p_now) as heard,
      coalesce(min(w.beating_since) filter (where f.id = p_worker), 'infinity') as since,
      count(*) filter (where l.late or (w.beating_since > p_now - p.patience and w.beating_since > w.started_at + p.patience))
        + (select count(*) from redrive.worker d where d.dead_at is not null and d.cut_off_at > p_now - 4 * p.patience)
        <= count(*) filter (where not l.late and w.beating_since <= p_now - p.patience) as few
    from (select make_interval(secs => p_dead_after_ms / 1000.0) as patience) p
      cross join redrive.fleet(p_dead_after_ms, p_lease_ms, p_now) f join redrive.worker w on w.id = f.id
      cross join lateral (select w.seen_at < p_now - make_interval(secs => 2 * w.beats_ms / 1000.0) as late) l
    group by p.patience
  ) g
$$;

-- Whether something runs that was claimed under this name before the process that has it now became a worker.
create or replace function redrive.left_behind(p_worker text, p_now timestamptz) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off as $$
  select exists (
    select 1 from redrive.task t
    where t.state = 'running' and t.lease_expires_at > p_now and t.worker_id = p_worker
      and t.last_attempt_at < (select w.started_at from redrive.worker w where w.id = p_worker))
$$;

-- Ends the leases of workers that are silent, and returns how many each of them had; recovery does the rest, fenced by their
-- tokens, and a renewal that comes before it keeps its lease. Nobody is declared dead while the judge has not itself beaten
-- without a gap for as long as that takes. "cut_off": so many are silent that it may be the network: leases that end at that
-- moment (worker.cut_off_at) are not held against their tasks.
create or replace function redrive.judge_silent(p_worker text, p_dead_after_ms integer, p_lease_ms integer)
returns table (worker text, tasks integer, cut_off boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_since constant timestamptz := v_now - make_interval(secs => p_dead_after_ms / 1000.0);
  v_silent record;
  v_started timestamptz;
begin
  if not exists (
    select 1 from redrive.worker w where w.id = p_worker and w.beats_ms is not null and w.beating_since <= v_since
      and w.seen_at > v_now - make_interval(secs => 2 * w.beats_ms / 1000.0))
  then return; end if;
  select s.* into v_silent from redrive.silent(p_worker, p_dead_after_ms, p_lease_ms, v_now) s;
  cut_off := v_silent.cut_off;
  if v_silent.judged_at <= v_now then
    for worker in
      select w.id from redrive.worker w where w.id = any (v_silent.ids)
        -- Somebody else may have been quicker, or itself.
        and w.dead_at is null and w.seen_at + make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0) <= v_now
      order by w.id for update skip locked
    loop
      tasks := redrive.end_leases(worker, 'infinity', v_now);
      update redrive.worker w set cut_off_at = case
          when v_silent.cut_off and (tasks > 0 or w.cut_off_at is null or w.cut_off_at < w.seen_at) then v_now
          else w.cut_off_at end,
        -- What is left is in the hands of a transaction that may never end: it is looked at again.
        dead_at = case when not redrive.has_leases(w.id, v_now) then v_now end
      where w.id = worker;
      return next;
    end loop;
  end if;
  cut_off := false;
  -- What another process had under a name that has been taken over since: that one would have taken it back by now.
  for worker, v_started in
    select w.id, w.started_at from redrive.worker w
    where w.id = p_worker and w.started_at <= v_now - make_interval(secs => greatest(p_dead_after_ms, 3 * w.beats_ms) / 1000.0)
  loop
    tasks := redrive.end_leases(worker, v_started, v_now);
    if tasks > 0 then return next; end if;
  end loop;
end $$;

create or replace function redrive.judge(p_worker text, p_dead_after_ms integer, p_lease_ms integer)
returns table (worker text, tasks integer)
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select j.worker, j.tasks from redrive.judge_silent(p_worker, p_dead_after_ms, p_lease_ms) j
$$;

-- Whether a worker has leases that have not ended.
create or replace function redrive.has_leases(p_worker text, p_now timestamptz) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select exists (
    select 1 from redrive.task t where t.state = 'running' and t.lease_expires_at > p_now and t.worker_id = p_worker)
$$;

-- Ends the leases that a worker has had since before p_before. What somebody is at just now is his to settle.
create or replace function redrive.end_leases(p_worker text, p_before timestamptz, p_now timestamptz) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_count integer;
begin
  update redrive.task t set lease_expires_at = p_now
  where t.id = any (array(
    select r.id from redrive.task r
    where r.state = 'running' and r.lease_expires_at > p_now and r.worker_id = p_worker and r.last_attempt_at < p_before
    order by r.id for no key update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Ends the leases of a worker whose process is known to be gone: whoever started it has seen it end, or somebody on the same
-- machine has looked. Returns how many; null if the worker is another process by now, or is declared dead already.
create or replace function redrive.bury_process(p_worker text, p_host text, p_pid integer, p_machine text, p_birth bigint)
returns integer language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_count integer;
begin
  perform 1 from redrive.worker w
  where w.id = p_worker and w.host = p_host and w.pid = p_pid and w.dead_at is null
    and (p_machine is null or w.machine = p_machine) and (p_birth is null or w.birth = p_birth) for update;
  if not found then return null; end if;
  v_count := redrive.end_leases(p_worker, 'infinity', v_now);
  update redrive.worker w set dead_at = v_now where w.id = p_worker and not redrive.has_leases(p_worker, v_now);
  return v_count;
end $$;

create or replace function redrive.bury(p_worker text, p_host text, p_pid integer) returns integer
language sql security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(redrive.bury_process(p_worker, p_host, p_pid, null, null), 0)
$$;

-- Notes of tasks under these leases that their worker has not begun them and has them wait, or that it begins them now: if it
-- dies meanwhile, that is none of their doing.
create or replace function redrive.set_apart(p_ids uuid[], p_tokens uuid[], p_apart boolean) returns void
language sql security definer set search_path = pg_catalog, pg_temp as $$
  update redrive.task t set apart = p_apart from unnest(p_ids, p_tokens) u(i, k) where t.id = u.i and t.lease_token = u.k
$$;

-- Asks a worker to end; it hears of it with its next beat. False if there is none of this name, or it was asked before.
create or replace function redrive.drain(p_worker text, p_actor text, p_reason text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update redrive.worker w set drain_at = clock_timestamp(), drain_by = p_actor, drain_reason = p_reason
  where w.id = p_worker and w.drain_at is null and w.beats_ms is not null;
  if not found then return false; end if;
  insert into redrive.audit (at, actor, action, reason, target, before, after)
  values (clock_timestamp(), p_actor, 'WORKER_DRAIN', p_reason, 'worker:' || p_worker, '{"draining": false}', '{"draining": true}');
  return true;
end $$;

-- functions/expired.sql

-- Leases that ran out, of tasks of one feature or of none. The recovering worker decides by the state machine and moves them, fenced by these tokens.
-- (select clock_timestamp()): asked once, it bounds the index scan; asked per row, every live lease would be read.
create or replace function redrive.expired(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision
  from redrive.task t
  where t.state = 'running' and t.lease_expires_at <= (select clock_timestamp())
    and t.lease_expires_at >= coalesce(p_from, '-infinity') and t.feature is not distinct from p_feature
  order by t.lease_expires_at limit p_limit
$$;

-- The same, with the workers that were lost while they had the task; null where whoever had it is no worker that beats: then
-- nobody knows whether it died. "unbegun": it had not begun it. "cut_offs": where more were missed than heard with it, how often
-- in a row that was so before.
create or replace function redrive.ended_leases(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision, deaths integer, unbegun boolean, cut_offs integer)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision,
    case when exists (select 1 from redrive.worker w where w.id = t.worker_id and w.beats_ms is not null) then t.deaths end,
    t.apart,
    case when exists (select 1 from redrive.worker w where w.id = t.worker_id and w.cut_off_at = t.lease_expires_at) then t.cut_offs end
  from redrive.task t
  where t.state = 'running' and t.lease_expires_at <= (select clock_timestamp())
    and t.lease_expires_at >= coalesce(p_from, '-infinity') and t.feature is not distinct from p_feature
  order by t.lease_expires_at limit p_limit
$$;

-- For workers of the version before, which hand back what was not begun.
create or replace function redrive.expired_leases(p_from timestamptz, p_limit integer, p_feature text default null)
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision, deaths integer, apart boolean)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select e.id, e.token, e.attempt_count, e.max_attempts, e.worker_id, e.feature, e.kind, e.queue, e.trace_id, e.timeout,
    e.seconds, e.deaths, e.unbegun or e.cut_offs is not null
  from redrive.ended_leases(p_from, p_limit, p_feature) e
$$;

-- functions/fold.sql

-- Dead letters that are removed, by whoever it is, leave the totals with it.
create or replace function redrive.letters_gone() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.total_delta (queue, kind, dead_letters)
  select g.queue, g.kind, -count(*) from gone g group by g.queue, g.kind;
  return null;
end $$;

-- Fold appended deltas into totals, a piece at a time. Readers always see total + deltas, before and after.
create or replace function redrive.fold(p_limit integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_totals integer;
  v_causes integer;
  v_failed integer;
  v_changed text[];
  v_seen text[];
  v_arrived jsonb;
  v_joins uuid[];
  v_retries integer;
begin
  begin
    lock table redrive.fold_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- somebody else is at it
  end;
  with gone as (
    delete from redrive.failed_delta d where d.ctid = any (array(select x.ctid from redrive.failed_delta x limit p_limit))
    returning *
  ), sums as (
    select g.kind, g.queue, g.task_group, g.error_code, g.error_reason, g.failure_type, g.dead_reason, g.fingerprint,
      sum(g.n) as n, count(*) as many
    from gone g group by g.kind, g.queue, g.task_group, g.error_code, g.error_reason, g.failure_type, g.dead_reason, g.fingerprint
  ), folded as (
    insert into redrive.failed_total as t (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
      fingerprint, n)
    select s.kind, s.queue, s.task_group, s.error_code, s.error_reason, s.failure_type, s.dead_reason, s.fingerprint, s.n
    from sums s where s.n <> 0
    on conflict (fingerprint, kind, queue, task_group, error_code, error_reason, failure_type, dead_reason)
    do update set n = t.n + excluded.n
  ), summed as (
    insert into redrive.failed_sum as m (dimension, value, n)
    select v.dimension, v.value, sum(s.n) from sums s cross join lateral (values ('total', ''), ('kind', s.kind), ('queue', s.queue), ('group', s.task_group),
      ('code', s.error_code), ('type', s.failure_type), ('reason', s.dead_reason), ('cause', s.fingerprint)) v(dimension, value)
    group by 1, 2 having sum(s.n) <> 0
    on conflict (dimension, value) do update set n = m.n + excluded.n
  )
  select coalesce(sum(s.many), 0), array_agg(distinct s.fingerprint) into v_failed, v_changed from sums s;
  -- What nobody is any more would only be added up.
  delete from redrive.failed_total t where t.n = 0;
  delete from redrive.failed_sum m where m.n = 0;
  with gone as (
    delete from redrive.total_delta d where d.ctid = any (array(select x.ctid from redrive.total_delta x limit p_limit))
    returning *
  ), sums as (
    select g.queue, g.kind, sum(g.queued) as queued, sum(g.delayed) as delayed, sum(g.running) as running,
      sum(g.paused) as paused, sum(g.failed) as failed, sum(g.completed) as completed, sum(g.cancelled) as cancelled,
      sum(g.dead_letters) as dead_letters, sum(g.forgotten) as forgotten, count(*) as n
    from gone g group by g.queue, g.kind
  ), folded as (
    insert into redrive.total as t (queue, kind, queued, delayed, running, paused, failed, completed, cancelled, dead_letters,
      forgotten)
    -- Names are short, unless a row came past all checks: it must not keep the others from being counted.
    select redrive.cut(s.queue, 120), redrive.cut(s.kind, 120), sum(s.queued), sum(s.delayed), sum(s.running),
      sum(s.paused), sum(s.failed), sum(s.completed), sum(s.cancelled), sum(s.dead_letters), sum(s.forgotten)
    from sums s group by 1, 2
    on conflict (queue, kind) do update set queued = t.queued + excluded.queued, delayed = t.delayed + excluded.delayed,
      running = t.running + excluded.running, paused = t.paused + excluded.paused, failed = t.failed + excluded.failed,
      completed = t.completed + excluded.completed, cancelled = t.cancelled + excluded.cancelled,
      dead_letters = t.dead_letters + excluded.dead_letters, forgotten = t.forgotten + excluded.forgotten
  )
  select coalesce(sum(s.n), 0) into v_totals from sums s;
  with gone as (
    delete from redrive.retry_delta d where d.ctid = any (array(select x.ctid from redrive.retry_delta x limit p_limit))
    returning *
  ), folded as (
    insert into redrive.retry_total as t (bulk_id, outcome, cause, n)
    select g.bulk_id, g.outcome, g.cause, sum(g.n) from gone g group by g.bulk_id, g.outcome, g.cause
    on conflict (bulk_id, outcome, cause) do update set n = t.n + excluded.n
  )
  select count(*) into v_retries from gone;
  with gone as (
    delete from redrive.failure_delta d where d.ctid = any (array(select x.ctid from redrive.failure_delta x limit p_limit))
    returning *
  ), hours as (
    insert into redrive.failure_hour as h (fingerprint, hour, n)
    select g.fingerprint, date_trunc('hour', g.at, 'UTC'), sum(g.n) from gone g group by 1, 2
    on conflict (fingerprint, hour) do update set n = h.n + excluded.n
  ), sums as (
    select g.fingerprint, sum(g.n) as n, min(g.at) as first_seen, max(g.at) as last_seen, max(g.alias) as alias
    from gone g group by g.fingerprint
  ), folded as (
    insert into redrive.failure_group as f (fingerprint, n, code, reason, failure_type, message, kind, sample_task,
      sample_scope, error_summary, first_seen, last_seen, alias)
    -- Message, kind, sample and summary are those of one failure, the latest.
    select s.fingerprint, s.n, l.code, l.reason, l.failure_type, l.message, l.kind, l.sample_task, l.sample_scope, l.error_summary,
      s.first_seen, s.last_seen, s.alias
    from sums s join (
      select distinct on (g.fingerprint) g.* from gone g order by g.fingerprint, g.at desc, g.sample_task
    ) l on l.fingerprint = s.fingerprint
    on conflict (fingerprint) do update set n = f.n + excluded.n, code = excluded.code, reason = excluded.reason,
      failure_type = excluded.failure_type, message = excluded.message, kind = excluded.kind, sample_task = excluded.sample_task,
      sample_scope = excluded.sample_scope, error_summary = excluded.error_summary,
      last_seen = greatest(f.last_seen, excluded.last_seen), alias = coalesce(excluded.alias, f.alias)
  )
  select coalesce(sum(s.n), 0), array_agg(s.fingerprint) into v_causes, v_seen from sums s;
  update redrive.failure_group f set failing = x.n
  from (
    select distinct u.fingerprint, coalesce(m.n, 0) as n from unnest(v_changed || v_seen) u(fingerprint)
    left join redrive.failed_sum m on m.dimension = 'cause' and m.value = u.fingerprint) x
  where f.fingerprint = x.fingerprint and f.failing <> x.n;
  -- Of joins that nobody holds: one that a handler's transaction has must not hold up all others. Of those that are gone nothing
  -- is left to add to.
  v_joins := array(
    select j.id from redrive.task_join j
    where j.id = any (array(select distinct d.join_id from redrive.join_delta d)) order by j.id for update skip locked);
  delete from redrive.join_delta d where not exists (select 1 from redrive.task_join j where j.id = d.join_id);
  with gone as (
    delete from redrive.join_delta d where d.ctid = any (array(
      select x.ctid from redrive.join_delta x where x.join_id = any (v_joins) limit p_limit))
    returning *
  )
  select jsonb_agg(s.*) into v_arrived from (
    select g.join_id, sum(g.completed) as completed, sum(g.failed) as failed, sum(g.cancelled) as cancelled, count(*) as n
    from gone g group by g.join_id) s;
  if v_arrived is not null then
    update redrive.task_join j set completed = j.completed + a.completed, failed = j.failed + a.failed,
      cancelled = j.cancelled + a.cancelled
    from jsonb_to_recordset(v_arrived) a(join_id uuid, completed bigint, failed bigint, cancelled bigint)
    where j.id = any (v_joins) and a.join_id = j.id;
    perform redrive.end_joins(v_joins);
    v_totals := v_totals + (select sum(a.n) from jsonb_to_recordset(v_arrived) a(n integer));
  end if;
  return v_totals + v_causes + v_failed + v_retries;
end $$;

-- functions/prune.sql

-- Is a task still to be found, live or finished? What belongs to it stays as long.
create or replace function redrive.is_kept(p_task uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  select exists (select 1 from redrive.task t where t.id = p_task)
    or exists (select 1 from redrive.history h where h.id = p_task)
$$;

-- Where the last piece ended; a day after its beginning a pass starts over, for tasks that have left meanwhile.
create or replace function redrive.prune_from(p_name text) returns redrive.pruned
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_from redrive.pruned;
begin
  insert into redrive.pruned (name, began) values (p_name, clock_timestamp()) on conflict do nothing;
  update redrive.pruned p set began = clock_timestamp(), at = default, seq = default, key = default
  where p.name = p_name and p.began < clock_timestamp() - interval '1 day';
  select * into v_from from redrive.pruned p where p.name = p_name for update;
  return v_from;
end $$;

-- A key is kept as long as its task is in the live table, however old.
create or replace function redrive.prune_keys(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('key');
begin
  with piece as materialized (
    select k.* from redrive.idempotency_key k
    where (k.created_at, k.key) > (v_from.at, v_from.key) and k.created_at < p_before
    order by k.created_at, k.key limit p_limit
  ), gone as (
    delete from redrive.idempotency_key ik where ik.key = any (array(
      select p.key from piece p where not exists (select 1 from redrive.task t where t.id = p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.created_at, key = p.key
    from (select x.created_at, x.key from piece x order by x.created_at desc, x.key desc limit 1) p where r.name = 'key'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- The failed attempts of a task stay as long as the task can be found.
create or replace function redrive.prune_attempts(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('attempt');
begin
  with piece as materialized (
    select a.seq, a.at, a.task_id from redrive.attempt a
    where (a.at, a.seq) > (v_from.at, v_from.seq) and a.at < p_before order by a.at, a.seq limit p_limit
  ), gone as (
    delete from redrive.attempt a where a.seq = any (array(
      select p.seq from piece p where not redrive.is_kept(p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.at, seq = p.seq
    from (select x.at, x.seq from piece x order by x.at desc, x.seq desc limit 1) p where r.name = 'attempt'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- A join is kept as long as one of its members is live, which may be retried and arrive again, or is the end of another join.
create or replace function redrive.prune_joins(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('join');
  v_after constant uuid := coalesce(nullif(v_from.key, ''), '00000000-0000-0000-0000-000000000000')::uuid;
begin
  with piece as materialized (
    select j.id, j.created_at, j.ended_at from redrive.task_join j
    where (j.created_at, j.id) > (v_from.at, v_after) and j.created_at < p_before order by j.created_at, j.id limit p_limit
  ), gone as (
    delete from redrive.task_join j where j.id = any (array(
      -- One that has not ended waits for somebody: whoever opened it closes it.
      select p.id from piece p where p.ended_at < p_before
        and p.id not in (select d.join_id from redrive.join_delta d)
        and not exists (select 1 from redrive.task t where t.join_id = p.id)
        and not exists (select 1 from redrive.task_join i where i.on_complete ->> 'join' = p.id::text)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.created_at, key = p.id::text
    from (select x.created_at, x.id from piece x order by x.created_at desc, x.id desc limit 1) p where r.name = 'join'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- In the order they were written, which is that of their times: no index by time has to be kept for it.
create or replace function redrive.prune_dead_letters(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('dead_letter');
begin
  removed := 0;
  more := false;
  if (select d.dead_at from redrive.dead_letter d where d.seq > v_from.seq order by d.seq limit 1) < p_before is not true then
    return;
  end if;
  with piece as materialized (
    select x.seq, x.task_id from (
      select d.seq, d.dead_at, d.task_id from redrive.dead_letter d where d.seq > v_from.seq order by d.seq limit p_limit) x
    where x.dead_at < p_before
  ), gone as (
    delete from redrive.dead_letter d where d.seq = any (array(
      select p.seq from piece p where not redrive.is_kept(p.task_id)))
    returning 1
  ), last as (
    update redrive.pruned r set seq = (select max(p.seq) from piece p) where r.name = 'dead_letter'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- Causes by which nothing is failed any more, with their hours and what people said about them.
create or replace function redrive.prune_causes(p_before timestamptz, p_noted_before timestamptz, p_limit integer,
  out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from constant redrive.pruned := redrive.prune_from('cause');
  v_gone text[];
begin
  with piece as materialized (
    select g.fingerprint, g.last_seen from redrive.failure_group g
    where (g.last_seen, g.fingerprint) > (v_from.at, v_from.key) and g.last_seen < p_before
    order by g.last_seen, g.fingerprint limit p_limit
  ), gone as (
    delete from redrive.failure_group g where g.fingerprint = any (array(
      select p.fingerprint from piece p
      where not exists (select 1 from redrive.failed_total t where t.fingerprint = p.fingerprint and t.n <> 0)
        and p.fingerprint not in (select d.fingerprint from redrive.failed_delta d)
        and p.fingerprint not in (select d.fingerprint from redrive.failure_delta d)
        and (p.last_seen < p_noted_before or not exists (
          select 1 from redrive.record r where r.collection = 'cause' and r.id = p.fingerprint))))
    returning g.fingerprint
  ), last as (
    update redrive.pruned r set at = p.last_seen, key = p.fingerprint
    from (select x.last_seen, x.fingerprint from piece x order by x.last_seen desc, x.fingerprint desc limit 1) p
    where r.name = 'cause'
  )
  select (select array_agg(g.fingerprint) from gone g), (select count(*) >= p_limit from piece) into v_gone, more;
  removed := coalesce(cardinality(v_gone), 0);
  if removed > 0 then
    delete from redrive.failure_hour h where h.fingerprint = any (v_gone);
    delete from redrive.record r where r.collection = 'cause' and r.id = any (v_gone);
  end if;
end $$;

-- What retention may remove in a worker's hands, whatever it was told to: nothing by which others are let in or what they did is
-- counted or proved, as long as that matters. See redrive.guard_record.
create or replace function redrive.prunable(p_record redrive.record) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case p_record.collection
    when 'access' then false
    when 'audit-seal' then false
    when 'alone' then p_record.expires_at < clock_timestamp()
    when 'session' then p_record.expires_at < clock_timestamp()
    when 'token' then p_record.state = 'revoked' and p_record.updated_at < clock_timestamp() - interval '1 day'
      and p_record.seq < (select max(t.seq) from redrive.record t where t.collection = 'token')
    when 'approval' then p_record.state <> 'pending' and p_record.updated_at < clock_timestamp() - interval '1 day'
    when 'operation' then p_record.state in ('completed', 'stopped', 'cancelled')
      and p_record.updated_at < clock_timestamp() - interval '1 day'
    else true end
$$;

-- Small documents: those that said themselves until when, and those of collections with a rule.
create or replace function redrive.prune_records(p_rules jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_any constant boolean := redrive.administers();
  v_rule record;
  v_n integer;
begin
  delete from redrive.record r where r.ctid = any (array(
    select x.ctid from redrive.record x where x.expires_at < v_now and (v_any or redrive.prunable(x))
    order by x.expires_at limit p_limit));
  get diagnostics removed = row_count;
  more := removed >= p_limit;
  for v_rule in
    select * from jsonb_to_recordset(p_rules) x(collection text, days double precision, states text[], keep_last boolean)
  loop
    delete from redrive.record r where r.ctid = any (array(
      select x.ctid from redrive.record x
      where x.collection = v_rule.collection and x.updated_at < v_now - make_interval(secs => v_rule.days * 86400)
        and (v_rule.states is null or x.state = any (v_rule.states))
        and (not v_rule.keep_last or x.seq < (
          select max(n.seq) from redrive.record n where n.collection = v_rule.collection))
        and (v_any or redrive.prunable(x))
      order by x.updated_at limit p_limit));
    get diagnostics v_n = row_count;
    removed := removed + v_n;
    more := more or v_n >= p_limit;
  end loop;
end $$;

-- The product's own time series, by the length of their rows; and sheets that nobody has added up for as long.
create or replace function redrive.prune_series(p_before jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_resolution text;
  v_n integer;
begin
  removed := 0;
  more := false;
  foreach v_resolution in array array['minute', 'hour', 'day'] loop
    delete from redrive.series s where s.ctid = any (array(
      select x.ctid from redrive.series x
      where x.resolution = v_resolution and x.at < (p_before ->> format('series_%s_days', v_resolution))::timestamptz
      order by x.at limit p_limit));
    get diagnostics v_n = row_count;
    more := more or v_n >= p_limit;
  end loop;
  delete from redrive.series_sheet s where s.at < (p_before ->> 'series_minute_days')::timestamptz;
end $$;

-- Remove what is past its keep (redrive.kernel.retention.Retention, as JSON). Bounded, so that it never holds locks for
-- long; "more" means "call again".
create or replace function redrive.prune(p_keep jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_before jsonb := (select jsonb_object_agg(k.key, v_now - make_interval(secs => k.value::double precision * 86400))
    from jsonb_each_text(p_keep - 'records') k);
  v_part record;
  v_hours integer;
  v_until timestamptz;
  v_full boolean;
  v_short integer;
begin
  delete from redrive.history_default h where h.ctid = any (array(
    select d.ctid from redrive.history_default d
    where d.finished_at < (v_before ->> 'history_days')::timestamptz order by d.finished_at limit p_limit));
  get diagnostics removed = row_count;
  more := removed >= p_limit;
  -- Kinds that say how long: up to the time of the last one of a piece, through the index of each day.
  select least(max(x.expires_at), v_now), count(*) >= p_limit into v_until, v_full from (
    select h.expires_at from redrive.history h
    where h.expires_at < v_now order by h.expires_at limit p_limit) x;
  if v_until is not null then
    delete from redrive.history h where h.expires_at <= v_until;
    get diagnostics v_short = row_count;
    removed := removed + v_short;
    more := more or v_full;
  end if;
  for v_part in
    select * from redrive.prune_keys((v_before ->> 'key_days')::timestamptz, p_limit)
    union all select * from redrive.prune_attempts((v_before ->> 'attempt_days')::timestamptz, p_limit)
    union all select * from redrive.prune_joins((v_before ->> 'history_days')::timestamptz, p_limit)
    union all select * from redrive.prune_dead_letters((v_before ->> 'dead_letter_days')::timestamptz, p_limit)
    union all select * from redrive.prune_causes((v_before ->> 'cause_days')::timestamptz,
      least((v_before ->> 'cause_days')::timestamptz, (v_before ->> 'noted_cause_days')::timestamptz), p_limit)
    union all select * from redrive.prune_records(p_keep -> 'records', p_limit)
    union all select * from redrive.prune_series(v_before, p_limit)
  loop
    removed := removed + v_part.removed;
    more := more or v_part.more;
  end loop;
  -- What became of a retry stays as long as its operation; of those that were none, as long as dead letters.
  delete from redrive.retry_total t where (t.bulk_id, t.outcome, t.cause) in (
    select x.bulk_id, x.outcome, x.cause from redrive.retry_total x
    where x.begun_at < (v_before ->> 'dead_letter_days')::timestamptz and not exists (
      select 1 from redrive.record r where r.collection = 'operation' and r.id = x.bulk_id)
    order by x.begun_at limit p_limit);
  delete from redrive.worker w where w.seen_at < (v_before ->> 'worker_days')::timestamptz;
  delete from redrive.failure_hour f where f.ctid = any (array(
    select x.ctid from redrive.failure_hour x
    where x.hour < (v_before ->> 'trend_days')::timestamptz order by x.hour limit p_limit));
  get diagnostics v_hours = row_count;
  more := more or v_hours >= p_limit;
end $$;

-- functions/erase.sql

-- Whether the caller may erase: who administers; and workers, as long as an erasure that others decided on is under way, about this
-- scope where one is given.
create or replace function redrive.check_erases(p_scope text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not redrive.administers() and not exists (
    select 1 from redrive.record r where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
      and (p_scope is null or r.body #>> '{which,scope}' = p_scope))
  then
    raise exception 'role % may not erase: no erasure is under way', redrive.caller() using
      errcode = 'insufficient_privilege', hint = 'an erasure is begun by the API''s role: redrive erase';
  end if;
end $$;

-- Whether such an erasure is about a row of the audit log: of its scope, of these tasks of it (p_ids), or quoting it.
create or replace function redrive.is_meant(p_row redrive.audit, p_ids uuid[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (
    select 1 from redrive.record r
    cross join lateral (select r.body #>> '{which,scope}' as scope,
      concat_ws(' ', p_row.reason, p_row.target, p_row.before, p_row.after) as words) e
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase' and (
      p_row.scope = e.scope or p_row.task_id = any (p_ids) or (r.body #> '{which,ids}') ? p_row.task_id::text
      or exists (select 1 from (select e.scope union all select jsonb_array_elements_text(r.body -> 'traces')) n(name)
        where p_row.reason = n.name or strpos(e.words, to_jsonb(n.name)::text) > 0
          or (length(n.name) >= 6 and (strpos(e.words, n.name) > 0 or strpos(e.words, btrim(to_jsonb(n.name)::text, '"')) > 0))
          or p_row.target = 'group:' || n.name)))
$$;

-- Which of these tasks an erasure that is under way is about: those that it names, those of its scope, and those that belong to something
-- of its scope, or to one of these. What belongs to what is asked of the functions whose comments begin with "For erasing:", which only
-- their owner can write. They get the scope, the tasks, and which of these are known to be meant.
create or replace function redrive.meant_tasks(p_ids uuid[]) returns uuid[]
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_own uuid[] := array(
    select u.id from unnest(p_ids) u(id), redrive.record r
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase'
      and ((r.body #> '{which,ids}') ? u.id::text
        or exists (select 1 from redrive.task t where t.id = u.id and t.scope = r.body #>> '{which,scope}')
        or exists (select 1 from redrive.history h where h.id = u.id and h.scope = r.body #>> '{which,scope}')
        or exists (select 1 from redrive.dead_letter d where d.task_id = u.id and d.scope = r.body #>> '{which,scope}')));
  v_scope text;
  v_function text;
  v_more uuid[];
begin
  for v_scope, v_function in
    select r.body #>> '{which,scope}', p.oid::regproc::text from generate_series(1, 2) pass, redrive.record r, pg_proc p
    where r.collection = 'operation' and r.state = 'running' and r.body ->> 'action' = 'erase' and r.body #>> '{which,scope}' is not null
      and p.pronamespace = 'redrive'::regnamespace and starts_with(obj_description(p.oid, 'pg_proc'), 'For erasing:')
    order by pass, p.proname
  loop
    if not p_ids <@ v_own then
      execute format('select array(select x from %s($1, $2, $3) x)', v_function) into v_more using v_scope, p_ids, v_own;
      v_own := v_own || array(select u.id from unnest(p_ids) u(id) where u.id = any (v_more) and u.id <> all (v_own));
    end if;
  end loop;
  return v_own;
end $$;

-- Personal data goes: of finished tasks what they carried, of their attempts and dead letters what was said, their keys, and
-- rows of the audit log but for a digest (p_telling: and for what they tell of removals). Live tasks among p_ids are left alone. Returns how many, by place.
create or replace function redrive.erase(p_ids uuid[], p_tombstone text, p_audit bigint[], p_digests text[], p_scope text,
  p_holds jsonb, p_telling bigint[])
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_ids uuid[] := array(
    select u.id from unnest(p_ids) u(id) where not exists (select 1 from redrive.task t where t.id = u.id));
  v_keys text[] := array(
    select h.idempotency_key from redrive.history h where h.id = any (v_ids) and h.idempotency_key is not null);
  v_gone uuid[] := array(
    select u.id from unnest(v_ids) u(id) where not exists (select 1 from redrive.history h where h.id = u.id));
  v_n integer;
  v_more integer := 0;
  v_done jsonb := '{}';
  v_any constant boolean := redrive.administers();
  v_own uuid[];
begin
  perform redrive.check_erases(p_scope);
  if not v_any then
    v_own := redrive.meant_tasks(p_ids);
    v_ids := array(select u.id from unnest(v_ids) u(id) where u.id = any (v_own));
    v_keys := array(
      select h.idempotency_key from redrive.history h where h.id = any (v_ids) and h.idempotency_key is not null);
    v_gone := array(select u.id from unnest(v_gone) u(id) where u.id = any (v_own));
  end if;
  update redrive.history h set payload = null, result = null, cancel_reason = null, trace_id = null, trace_parent = null, task_group = null,
    idempotency_key = null, facts = null, scope = case when h.scope is null then null else p_tombstone end,
    erased_at = clock_timestamp()
  where h.id = any (v_ids) and h.erased_at is null;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('tasks', v_n);
  update redrive.attempt a set message = 'erased', stack = null, error_summary = null, peer = null
  where a.task_id = any (v_ids) and (a.message <> 'erased' or a.stack is not null or a.error_summary is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('attempts', v_n);
  update redrive.dead_letter d set payload = null, error_message = 'erased', error_summary = null, task_group = null,
    trace_id = null, scope = case when d.scope is null then null else p_tombstone end
  where d.task_id = any (v_ids) and (d.error_message <> 'erased' or d.payload is not null
    or d.error_summary is not null or d.scope is distinct from p_tombstone);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('dead_letters', v_n);
  -- A key may name another task by now.
  delete from redrive.idempotency_key k where k.key = any (v_keys) and k.task_id = any (v_ids);
  get diagnostics v_n = row_count;
  if cardinality(v_gone) > 0 then  -- there is no index of this, because keys are written with tasks
    delete from redrive.idempotency_key k where k.task_id = any (v_gone);
    get diagnostics v_more = row_count;
  end if;
  v_done := v_done || jsonb_build_object('keys', v_n + v_more);
  update redrive.failure_delta d set message = 'erased', error_summary = null, sample_scope = null
  where (d.sample_task = any (v_ids) or d.sample_scope = p_scope)
    and (d.message <> 'erased' or d.sample_scope is not null);
  get diagnostics v_more = row_count;
  update redrive.failure_group g set message = 'erased', error_summary = null, sample_scope = null
  where (g.sample_task = any (v_ids) or g.sample_scope = p_scope)
    and (g.message <> 'erased' or g.sample_scope is not null);
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('causes', v_n + v_more);
  v_n := redrive.erase_callbacks(p_scope);
  v_done := v_done || jsonb_build_object('joins', v_n);
  update redrive.hold h set reason = 'erased'
  from jsonb_array_elements(p_holds) x(hold) where h.target = x.hold ->> 0 and h.name = x.hold ->> 1;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('holds', v_n);
  update redrive.audit a set reason = null, target = null, scope = null, trace_id = null, before = null, salt = null,
    after = case when a.id = any (p_telling) then a.after end, erased = u.digest
  from unnest(p_audit, p_digests) u(id, digest) where a.id = u.id and a.erased is null
    and (v_any or redrive.is_meant(a, v_own));
  get diagnostics v_n = row_count;
  return v_done || jsonb_build_object('audit', v_n);
end $$;

-- Why circuits were opened and workers told to drain, where somebody wrote the scope into it. A short scope is looked for as
-- the whole text only: inside of sentences it would be found everywhere. Returns how many.
create or replace function redrive.erase_reasons(p_scope text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_circuits integer;
  v_workers integer;
begin
  perform redrive.check_erases(p_scope);
  update redrive.circuit c set reason = 'erased' where c.reason = p_scope or (length(p_scope) >= 6 and strpos(c.reason, p_scope) > 0);
  get diagnostics v_circuits = row_count;
  update redrive.worker w set drain_reason = 'erased' where w.drain_reason = p_scope or (length(p_scope) >= 6 and strpos(w.drain_reason, p_scope) > 0);
  get diagnostics v_workers = row_count;
  return v_circuits + v_workers;
end $$;

-- What is enqueued at the end of joins, and is about this scope, goes; who waits for it does not wait for ever. Returns how many.
create or replace function redrive.erase_callbacks(p_scope text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_n integer;
  v_outer uuid[] := array(
    select (j.on_complete ->> 'join')::uuid from redrive.task_join j
    where j.on_complete ->> 'scope' = p_scope and j.on_complete ->> 'join' is not null);
begin
  perform redrive.check_erases(p_scope);
  update redrive.task_join j set on_complete = case when j.on_complete ->> 'scope' is distinct from p_scope then j.on_complete end,
    on_success = case when j.on_success ->> 'scope' is distinct from p_scope then j.on_success end
  where j.on_complete ->> 'scope' = p_scope or j.on_success ->> 'scope' = p_scope;
  get diagnostics v_n = row_count;
  if cardinality(v_outer) > 0 then
    perform redrive.arrive(v_outer, null, array_fill('cancelled'::redrive.state, array[cardinality(v_outer)]));
  end if;
  return v_n;
end $$;

-- functions/grants.sql

-- Who may do what. Nothing is open to everyone, and no role but the owner writes to tables by hand: workers change tasks
-- through functions that run with the owner's rights and keep totals, dead letters and audit right. Run as the owner:
--   select redrive.grant_producer('web'), redrive.grant_worker('worker'), redrive.grant_api('api'), redrive.grant_viewer('analyst');

-- Views that redrive has outside of its schema, so that they are found without it: their comments say so, and whose they are.
create or replace function redrive.outside_views() returns setof regclass
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.oid::regclass from pg_class c where c.relkind = 'v' and c.relnamespace = to_regnamespace('public')
    and c.relowner = (select t.relowner from pg_class t where t.oid = 'redrive.task'::regclass)
    and starts_with(obj_description(c.oid, 'pg_class'), 'For producers: redrive.');
$$;

-- A producer may enqueue, and call what features made for producers, and nothing else. Such a function says so in its
-- comment, which only its owner can write: comment on function redrive.publish(…) is 'For producers: …'; a view into which
-- they may insert, too.
create or replace function redrive.grant_producer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
  v_view regclass;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant select on redrive.migration to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, '
    'interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(text, jsonb, redrive.traceparent, integer, integer, interval, '
    'timestamptz, interval, text, text, text, text, uuid) to %I', p_role);
  execute format('grant execute on function redrive.enqueue(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean) to %I', p_role);
  execute format('grant execute on function redrive.enqueue_declared(uuid[], text[], text[], jsonb[], integer[], integer[], '
    'double precision[], timestamptz[], integer[], text[], text[], text[], text[], boolean, boolean[]) to %I', p_role);
  insert into redrive.name_allowance (role, part) select p_role, p.n from generate_series(1, 10) p(n) on conflict do nothing;
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and starts_with(obj_description(p.oid, 'pg_proc'), 'For producers:')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
  for v_view in
    select c.oid from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind = 'v'
      and starts_with(obj_description(c.oid, 'pg_class'), 'For producers:')
    union all select o from redrive.outside_views() o
  loop
    execute format('grant insert on %s to %I', v_view, p_role);
  end loop;
end $$;

-- Who may call this may also write tokens, sessions and approvals: see redrive.guard_record.
create or replace function redrive.administer() returns boolean
language sql set search_path = pg_catalog, pg_temp as $$ select true $$;

-- Who calls, also inside of functions that run with their owner's rights.
create or replace function redrive.caller() returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(nullif(current_setting('role'), 'none'), session_user)::name
$$;

create or replace function redrive.administers() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select has_function_privilege(redrive.caller(), 'redrive.administer()', 'execute')
$$;

-- Who may announce names: applications that work, and operators.
create or replace function redrive.announces() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select has_function_privilege(redrive.caller(), 'redrive.know_names(text[], text[], bigint, jsonb)', 'execute')
$$;

-- A worker may run tasks: read what is needed for that, call the functions, and keep small documents and the audit log; not
-- tokens, sessions and approvals, by which others are let in. What it had and does not need goes.
create or replace function redrive.grant_worker(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_function regprocedure;
  v_table record;
  -- Workers from before a step may need what those from now on do not: for a day after it their role keeps what it had, as long as
  -- some seem to run. What workers say of themselves gives a role nothing that it has not had.
  v_before boolean := exists (select 1 from redrive.worker w where w.seen_at > clock_timestamp() - interval '2 minutes'
      and w.started_at < (select max(m.applied_at) from redrive.migration m))
    and (select max(m.applied_at) from redrive.migration m) > clock_timestamp() - interval '1 day'
    and not has_function_privilege(p_role, 'redrive.administer()', 'execute');
  v_kept oid[] := array(select c.oid from pg_class c where v_before and c.relnamespace = 'redrive'::regnamespace
    and c.relkind in ('r', 'p') and has_table_privilege(p_role, c.oid, 'delete'));
begin
  execute format('revoke all on all tables in schema redrive from %I', p_role);
  execute format('revoke all on function redrive.administer() from %I', p_role);
  execute format('grant usage on schema redrive to %I', p_role);
  execute format('grant insert, update on redrive.record to %I', p_role);
  execute format('grant insert, delete on redrive.audit to %I', p_role);
  -- Tables of features, which are named after them, are written by the features' own statements. One whose comment begins with
  -- "For workers:" says there which rights these are, and only its owner can write that.
  for v_table in
    select c.oid::regclass as name, case
        when c.oid <> all (v_kept) and starts_with(obj_description(c.oid, 'pg_class'), 'For workers: ')
        then substr(obj_description(c.oid, 'pg_class'), 14)
        when c.relkind <> 'v' and exists (select 1 from redrive.migration m
          where m.feature <> '' and (c.relname = m.feature or starts_with(c.relname, m.feature || '_')))
        then 'select, insert, update, delete' else 'select' end as rights
    from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p', 'v')
  loop
    execute format('grant %s on %s to %I', v_table.rights, v_table.name, p_role);
  end loop;
  -- The others are inner parts of these, and would run with the caller's rights, as "apply_own" is meant to.
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'redrive'::regnamespace and (p.prosecdef or p.provolatile <> 'v' or p.proname = 'apply_own')
  loop
    execute format('grant execute on function %s to %I', v_function, p_role);
  end loop;
  for v_table in select o as name from redrive.outside_views() o loop
    execute format('grant select on %s to %I', v_table.name, p_role);
  end loop;
end $$;

-- What serves the HTTP API, and the command line of operators: all that a worker may do, and what decides who may operate and
-- how receivers know us.
create or replace function redrive.grant_api(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_table regclass;
begin
  perform redrive.grant_worker(p_role);
  execute format('grant execute on function redrive.administer() to %I', p_role);
  for v_table in
    select c.oid from pg_class c where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p')
      and starts_with(obj_description(c.oid, 'pg_class'), 'For workers: ')
  loop
    execute format('grant select, insert, update, delete on %s to %I', v_table, p_role);
  end loop;
end $$;

-- A viewer may look at the views, without what tasks carry and say: payloads, results, messages, stacks and idempotency
-- keys may hold secrets, and are the workers' and operators'.
create or replace function redrive.grant_viewer(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_view record;
begin
  execute format('grant usage on schema redrive to %I', p_role);
  for v_view in
    select c.oid::regclass as name, string_agg(quote_ident(a.attname), ', ' order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where (c.relnamespace = 'redrive'::regnamespace or c.oid in (select o from redrive.outside_views() o))
      and c.relkind = 'v' and a.attnum > 0
      and a.attname not in ('payload', 'result', 'progress', 'error', 'error_message', 'error_stack', 'before',
        'after', 'idempotency_key')
    group by c.oid
  loop
    execute format('grant select (%s) on %s to %I', v_view.columns, v_view.name, p_role);
  end loop;
end $$;

-- Gives what a step or a feature added to everyone who had the rest: a deploy migrates before its workers know of it, and
-- those that run must not be refused what is new. What a role had and its kind has no more goes. Returns how many roles it looked after.
create or replace function redrive.grant_again() returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_role record;
  v_count integer := 0;
begin
  for v_role in
    with given as (
      select a.grantee, p.proname::text as what from pg_proc p, aclexplode(p.proacl) a
      where p.pronamespace = 'redrive'::regnamespace and p.proname in ('administer', 'cycle', 'enqueue') and a.grantee not in (0, p.proowner)
      union
      select a.grantee, 'view' from pg_attribute c, aclexplode(c.attacl) a
      where c.attrelid = 'redrive.v_tasks'::regclass and c.attname = 'state'
    )
    select r.rolname as name, bool_or(g.what = 'administer') as api, bool_or(g.what = 'cycle') as worker, bool_or(g.what = 'enqueue') as producer,
      bool_or(g.what = 'view') as viewer
    from given g join pg_roles r on r.oid = g.grantee group by r.rolname
  loop
    if v_role.api then perform redrive.grant_api(v_role.name);
    elsif v_role.worker then perform redrive.grant_worker(v_role.name);
    elsif v_role.producer then perform redrive.grant_producer(v_role.name); end if;
    if v_role.viewer then perform redrive.grant_viewer(v_role.name); end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
