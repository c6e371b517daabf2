-- What workers do besides running tasks: beat, promote, limits and holds, schedules, money, housekeeping.

-- Tasks of these queues whose time has come join the tail, in the order they were due. p_from: nothing due lies before it.
create function redrive.promote(p_queues text[], p_from timestamptz, p_limit integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_promoted integer;
  v_wake jsonb;
begin
  with due as materialized (
    -- Chosen first and locked then: as many as are promoted, not as many for each queue.
    select l.at from (
      select r.at from unnest(p_queues) q(queue) cross join lateral (
        select d.ctid as at, d.next_attempt_at from redrive.task d
        where d.state = 'delayed' and d.queue = q.queue and d.next_attempt_at <= v_now
          and d.next_attempt_at >= coalesce(p_from, '-infinity')
        order by d.next_attempt_at limit p_limit) r
      order by r.next_attempt_at limit p_limit) c
    cross join lateral (
      select t.ctid as at from redrive.task t where t.ctid = c.at and (t.state = 'delayed') is true
      for update skip locked) l
  ), ready as (
    update redrive.task t set state = 'queued', position = r.position, next_attempt_at = null,
      lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), '')
    from (select d.at, nextval('redrive.position') as position from due d) r
    where t.ctid = r.at
    returning t.queue, t.kind, t.position
  ), tally as (
    insert into redrive.total_delta (queue, kind, delayed, queued)
    select r.queue, r.kind, -count(*), count(*) from ready r group by r.queue, r.kind
  )
  select (select count(*) from ready), (select jsonb_object_agg(w.queue, w.position) from (
    select r.queue, min(r.position) as position from ready r group by r.queue) w)
  into v_promoted, v_wake;
  if v_wake is not null then
    perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
  end if;
  return v_promoted;
end $$;

-- The same for all queues, also those that no worker serves: what is due there is seen to be waiting.
create function redrive.promote_everywhere(p_limit integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_queue text;
  v_queues text[] := '{}';
begin
  loop
    select t.queue into v_queue from redrive.task t
    where t.state = 'delayed' and t.queue > coalesce(v_queue, '') order by t.queue limit 1;
    exit when not found;
    v_queues := v_queues || v_queue;
  end loop;
  return redrive.promote(v_queues, null, p_limit);
end $$;

-- A worker's beat. Promotes what is due in its queues, hands out duties (each to one worker of the fleet per interval), and answers
-- which of the worker's tasks somebody wants cancelled and in how many seconds something will be due.
-- p_from: nothing due or expired lies before it, as far as an earlier tick saw (checked_to); index entries of long
-- promoted and settled rows may, and are not walked again.
create function redrive.tick(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_concurrency integer, p_running integer, p_version text,
  p_stopping boolean, p_duties text[], p_every double precision[], p_from timestamptz, p_limit integer, p_beat_ms integer,
  p_features text[] default '{}', p_while_duties text[] default '{}', p_while_collections text[] default '{}',
  p_while_states text[] default '{}'
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
  update redrive.worker w set seen_at = v_now, running = p_running, stopping = p_stopping
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
      beat_ms = excluded.beat_ms;
  end if;

  if exists (select 1 from unnest(p_duties) u(name) where not exists (select 1 from redrive.duty d where d.name = u.name)) then
    insert into redrive.duty (name, next_at) select u.name, v_now from unnest(p_duties) u(name) on conflict do nothing;
  end if;
  with won as (
    select d.name from redrive.duty d where d.name = any (p_duties) and d.next_at <= v_now for update skip locked
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
  if not v_expired then duties := array_remove(duties, 'recover'); end if;
  if not exists (select 1 from redrive.total_delta) and not exists (select 1 from redrive.failure_delta)
    and not exists (select 1 from redrive.failed_delta) and not exists (select 1 from redrive.join_delta) then
    duties := array_remove(duties, 'fold');
  end if;
  duties := array(
    select d.name from unnest(duties) d(name) where not exists (
      select 1 from unnest(p_while_duties, p_while_collections, p_while_states) w(name, collection, state)
      where w.name = d.name
        and not exists (select 1 from redrive.record r where r.collection = w.collection and r.state = w.state)));
  if exists (select 1 from redrive.schedule s where s.next_at <= v_now) then duties := duties || array['cron']; end if;

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
    (select min(k.next_at) from redrive.kind k where k.rate_ms is not null and k.next_at > v_now)) - clock_timestamp()) end;
  promoted := promoted + v_back;
  return next;
end $$;

-- Leases that ran out. The recovering worker decides by the state machine and moves them, fenced by these tokens.
-- (select clock_timestamp()): asked once, it bounds the index scan; asked per row, every live lease would be read.
create function redrive.expired(p_from timestamptz, p_limit integer, p_features text[] default '{}')
returns table (
  id uuid, token uuid, attempt_count integer, max_attempts integer, worker_id text, feature text, kind text, queue text,
  trace_id text, timeout double precision, seconds double precision, cancelled boolean)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select t.id, t.lease_token, t.attempt_count, t.max_attempts, t.worker_id, t.feature, t.kind, t.queue, t.trace_id,
    t.timeout_ms / 1000.0::double precision,
    coalesce(extract(epoch from (select clock_timestamp()) - t.last_attempt_at), 0)::double precision,
    t.cancel_requested_at is not null
  from redrive.task t
  where t.state = 'running' and t.lease_expires_at <= (select clock_timestamp())
    and t.lease_expires_at >= coalesce(p_from, '-infinity') and (t.feature is null or t.feature = any (p_features))
  order by t.lease_expires_at limit p_limit
$$;

-- Tasks of groups that are held no more, back to their queues: at most p_limit of each, one group after the other until
-- there were that many (or of p_group only). Answers how many it looked at: a full piece means "call again".
create function redrive.resume_groups(p_limit integer, p_group text default null) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_group redrive.resuming;
  v_total integer := 0;
  v_looked integer;
  v_last uuid;
  v_wake jsonb;
begin
  for v_group in
    select * from redrive.resuming r where p_group is null or r.task_group = p_group
    order by r.task_group for update skip locked
  loop
    exit when v_total >= p_limit;
    with piece as materialized (
      select t.id from redrive.task t
      where t.state = 'paused' and t.task_group = v_group.task_group
        and t.id >= coalesce(v_group.after, '00000000-0000-0000-0000-000000000000') and t.id is distinct from v_group.after
      order by t.task_group, t.id limit p_limit
    ), mine as materialized (
      select t.id from redrive.task t
      where t.id = any (array(select p.id from piece p)) and (t.state = 'paused') is true
        and t.paused_by = 'group:' || v_group.task_group
      order by t.id for update skip locked
    ), back as (
      update redrive.task t set state = 'queued', position = m.position, paused_by = null,
        lane = coalesce((select k.kind from redrive.kind k where k.kind = t.kind), '')
      from (select x.id, nextval('redrive.position') as position from mine x) m
      where t.id = m.id and t.id = any (array(select x.id from mine x))
      returning t.queue, t.kind, t.position
    ), tally as (
      insert into redrive.total_delta (queue, kind, queued, paused)
      select b.queue, b.kind, count(*), -count(*) from back b group by b.queue, b.kind
    )
    select (select count(*) from piece), (select p.id from piece p order by p.id desc limit 1),
      (select jsonb_object_agg(w.queue, w.position) from (
        select b.queue, min(b.position) as position from back b group by b.queue) w)
    into v_looked, v_last, v_wake;
    if v_wake is not null then
      perform redrive.wake(w.key, w.value::bigint) from jsonb_each_text(v_wake) w;
    end if;
    if v_looked >= p_limit then
      update redrive.resuming r set after = v_last where r.task_group = v_group.task_group;
    elsif exists (
      select 1 from redrive.task t
      where t.state = 'paused' and t.task_group = v_group.task_group and t.paused_by = 'group:' || v_group.task_group
    ) then
      -- Somebody had some of them locked: from the start again, with the next tick.
      update redrive.resuming r set after = null where r.task_group = v_group.task_group;
    else
      delete from redrive.resuming r where r.task_group = v_group.task_group;
    end if;
    v_total := v_total + v_looked;
  end loop;
  return v_total;
end $$;

-- For the rest of the caller's transaction nothing fails, and nothing is retried.
create function redrive.stop_moves() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  lock table redrive.move_lock in exclusive mode;
end $$;

-- Pause or resume a queue, kind or group.
create function redrive.set_hold(p_target text, p_name text, p_on boolean, p_actor text, p_reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_changed integer;
  v_now constant timestamptz := clock_timestamp();
begin
  -- Waits for claims in flight and keeps new ones out until this is committed: no task starts after a pause returned.
  lock table redrive.move_lock in exclusive mode;
  if p_on then
    insert into redrive.hold (target, name, actor, reason, at) values (p_target, p_name, p_actor, p_reason, v_now)
    on conflict do nothing;
    get diagnostics v_changed = row_count;
    if p_target = 'kind' then
      insert into redrive.kind (kind) values (p_name) on conflict do nothing;
    elsif p_target = 'group' then
      delete from redrive.resuming r where r.task_group = p_name;
    end if;
  else
    delete from redrive.hold h where h.target = p_target and h.name = p_name;
    get diagnostics v_changed = row_count;
    if p_target = 'group' then
      -- A small group is back at once; of a large one the ticks bring piece after piece, and nobody waits for it here.
      insert into redrive.resuming (task_group) values (p_name) on conflict do nothing;
      perform redrive.resume_groups(1000, p_name);
    end if;
    perform pg_notify('redrive', 'ready * 0');
  end if;
  if v_changed > 0 then
    insert into redrive.audit (at, actor, action, reason, target, kind, before, after)
    values (v_now, p_actor, upper(p_target) || case when p_on then '_PAUSE' else '_RESUME' end, p_reason,
      p_target || ':' || p_name, case when p_target = 'kind' then p_name end, jsonb_build_object('paused', not p_on), jsonb_build_object('paused', p_on));
  end if;
  return v_changed > 0;
end $$;

-- What the fleet may do with a kind. p_actor null: a worker's configuration, which never overrides an operator.
create function redrive.set_limit(p_kind text, p_concurrency integer, p_rate_ms integer, p_actor text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set lock_timeout = '10s' as $$
declare
  v_old redrive.kind;
begin
  -- Twice: once to leave without the lock when there is nothing to do, and once to decide.
  for i in 1..2 loop
    select * into v_old from redrive.kind k where k.kind = p_kind;
    if found and v_old.concurrency is not distinct from p_concurrency and v_old.rate_ms is not distinct from p_rate_ms
      or (p_actor is null and v_old.actor is not null) then
      return false;
    end if;
    -- Claims in flight finish first; the next ones see the limit. So the count below misses nobody.
    if i = 1 then lock table redrive.move_lock in exclusive mode; end if;
  end loop;
  insert into redrive.kind as k (kind, concurrency, rate_ms, actor) values (p_kind, p_concurrency, p_rate_ms, p_actor)
  on conflict (kind) do update set concurrency = excluded.concurrency, rate_ms = excluded.rate_ms, actor = excluded.actor,
    next_at = case when excluded.rate_ms is null then null else k.next_at end;
  perform redrive.recount(p_kind);
  if p_actor is not null then
    insert into redrive.audit (at, actor, action, target, kind, before, after)
    values (clock_timestamp(), p_actor, 'KIND_LIMIT', 'kind:' || p_kind, p_kind,
      jsonb_build_object('concurrency', v_old.concurrency, 'rate_ms', v_old.rate_ms),
      jsonb_build_object('concurrency', p_concurrency, 'rate_ms', p_rate_ms));
  end if;
  perform pg_notify('redrive', 'ready * 0');
  return true;
end $$;

-- Count a limited kind's running tasks anew. With its row locked, whoever changes the number waits or is counted.
create function redrive.recount(p_kind text) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_running integer;
  v_before integer;
begin
  select k.running into v_before from redrive.kind k where k.kind = p_kind for update;
  select count(*) into v_running from redrive.task t where t.state = 'running' and t.kind = p_kind;
  update redrive.kind k set running = v_running where k.kind = p_kind and k.running <> v_running;
  return v_running - v_before;
end $$;

-- Count all limited kinds anew; answers by how much the counters were wrong. Row and count are compared in one snapshot
-- and without a lock: the walk over the running tasks may be long when dead entries cannot be removed.
create function redrive.recount() returns integer
language sql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
  select coalesce(sum(abs(redrive.recount(w.kind))), 0)::integer
  from (
    select k.kind from redrive.kind k
    left join (
      select t.kind, count(*) as n from redrive.task t where t.state = 'running' and t.lease_expires_at > '-infinity'
      group by t.kind) r on r.kind = k.kind
    where k.concurrency is not null and k.running <> coalesce(r.n, 0)
    order by k.kind
  ) w
$$;

-- Ask for a running task to stop; its worker is told at once.
create function redrive.request_cancel(p_id uuid, p_actor text, p_reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  v_task redrive.task;
begin
  update redrive.task t set cancel_requested_at = coalesce(t.cancel_requested_at, clock_timestamp())
  where t.id = p_id and (t.state = 'running') is true returning t.* into v_task;
  if not found then return false; end if;
  insert into redrive.audit (at, actor, action, reason, task_id, kind, scope, trace_id, before, after)
  values (clock_timestamp(), p_actor, 'TASK_CANCEL_REQUEST', p_reason, p_id, v_task.kind, v_task.scope, v_task.trace_id,
    '{"state": "running"}',
    '{"state": "running", "cancel_requested": true}');
  perform pg_notify('redrive', 'cancel ' || v_task.worker_id);
  return true;
end $$;

-- All schedules of one application. A schedule whose definition is unchanged keeps its next run.
create function redrive.declare_schedules(p_owner text, p_schedules jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from redrive.schedule s
  where s.owner = p_owner and not exists (
    select 1 from jsonb_to_recordset(p_schedules) x(name text) where x.name = s.name);
  insert into redrive.schedule as s (name, owner, kind, cron, timezone, missed, queue, payload, priority, max_attempts, next_at)
  select x.name, p_owner, x.kind, x.cron, x.timezone, x.missed, x.queue, x.payload, x.priority, x.max_attempts, x.next_at
  from jsonb_to_recordset(p_schedules) x(name text, kind text, cron text, timezone text, missed text, queue text,
    payload jsonb, priority smallint, max_attempts integer, next_at timestamptz)
  on conflict (name) do update set owner = excluded.owner, kind = excluded.kind, missed = excluded.missed,
    queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, max_attempts = excluded.max_attempts,
    next_at = case when (s.cron, s.timezone) = (excluded.cron, excluded.timezone) then s.next_at else excluded.next_at end,
    cron = excluded.cron, timezone = excluded.timezone;
end $$;

-- True for exactly one caller per planned run.
create function redrive.fire(p_name text, p_seen timestamptz, p_next timestamptz) returns boolean
language sql security definer set search_path = pg_catalog, pg_temp as $$
  with fired as (
    update redrive.schedule s set next_at = p_next, last_at = clock_timestamp()
    where s.name = p_name and s.next_at = p_seen returning 1
  )
  select exists (select 1 from fired)
$$;

-- One movement of money. False when the key was posted before. The caller's entries add up to zero; so does the table.
create function redrive.post(p_key text, p_accounts text[], p_amounts bigint[], p_note text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if (select sum(a) from unnest(p_amounts) a) is distinct from 0 then
    raise exception 'posting % does not add up to zero', quote_literal(p_key) using errcode = 'check_violation';
  end if;
  insert into redrive.posting (key, at, note) values (p_key, clock_timestamp(), p_note) on conflict do nothing;
  if not found then return false; end if;
  insert into redrive.account (name) select distinct a from unnest(p_accounts) a order by a on conflict do nothing;
  -- In the order of their names: two postings over the same accounts cannot deadlock.
  perform 1 from redrive.account c where c.name = any (p_accounts) order by c.name for update;
  update redrive.account c set balance = c.balance + u.amount
  from (select x.account, sum(x.amount) as amount from unnest(p_accounts, p_amounts) x(account, amount) group by x.account) u
  where c.name = u.account;
  insert into redrive.entry (posting, account, amount) select p_key, u.a, u.n from unnest(p_accounts, p_amounts) u(a, n);
  return true;
end $$;

-- Fold appended deltas into totals, a piece at a time. Readers always see total + deltas, before and after.
-- Dead letters that are removed, by whoever it is, leave the totals with it.
create function redrive.letters_gone() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into redrive.total_delta (queue, kind, dead_letters)
  select g.queue, g.kind, -count(*) from gone g group by g.queue, g.kind;
  return null;
end $$;
create trigger dead_letter_gone after delete on redrive.dead_letter referencing old table as gone
  for each statement execute function redrive.letters_gone();

create function redrive.fold(p_limit integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_totals integer;
  v_causes integer;
  v_failed integer;
  v_changed text[];
  v_seen text[];
  v_arrived jsonb;
  v_joins uuid[];
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
      sum(g.dead_letters) as dead_letters, count(*) as n
    from gone g group by g.queue, g.kind
  ), folded as (
    insert into redrive.total as t (queue, kind, queued, delayed, running, paused, failed, completed, cancelled, dead_letters)
    -- Names are short, unless a row came past all checks: it must not keep the others from being counted.
    select redrive.cut(s.queue, 120), redrive.cut(s.kind, 120), sum(s.queued), sum(s.delayed), sum(s.running),
      sum(s.paused), sum(s.failed), sum(s.completed), sum(s.cancelled), sum(s.dead_letters)
    from sums s group by 1, 2
    on conflict (queue, kind) do update set queued = t.queued + excluded.queued, delayed = t.delayed + excluded.delayed,
      running = t.running + excluded.running, paused = t.paused + excluded.paused, failed = t.failed + excluded.failed,
      completed = t.completed + excluded.completed, cancelled = t.cancelled + excluded.cancelled,
      dead_letters = t.dead_letters + excluded.dead_letters
  )
  select coalesce(sum(s.n), 0) into v_totals from sums s;
  with gone as (
    delete from redrive.failure_delta d where d.ctid = any (array(select x.ctid from redrive.failure_delta x limit p_limit))
    returning *
  ), hours as (
    insert into redrive.failure_hour as h (fingerprint, hour, n)
    select g.fingerprint, date_trunc('hour', g.at, 'UTC'), sum(g.n) from gone g group by 1, 2
    on conflict (fingerprint, hour) do update set n = h.n + excluded.n
  ), sums as (
    select g.fingerprint, sum(g.n) as n, min(g.at) as first_seen, max(g.at) as last_seen from gone g group by g.fingerprint
  ), folded as (
    insert into redrive.failure_group as f (fingerprint, n, code, reason, failure_type, message, kind, sample_task,
      sample_scope, error_summary, first_seen, last_seen)
    -- Message, kind, sample and summary are those of one failure, the latest.
    select s.fingerprint, s.n, l.code, l.reason, l.failure_type, l.message, l.kind, l.sample_task, l.sample_scope, l.error_summary,
      s.first_seen, s.last_seen
    from sums s join (
      select distinct on (g.fingerprint) g.* from gone g order by g.fingerprint, g.at desc, g.sample_task
    ) l on l.fingerprint = s.fingerprint
    on conflict (fingerprint) do update set n = f.n + excluded.n, code = excluded.code, reason = excluded.reason,
      failure_type = excluded.failure_type, message = excluded.message, kind = excluded.kind, sample_task = excluded.sample_task,
      sample_scope = excluded.sample_scope, error_summary = excluded.error_summary,
      last_seen = greatest(f.last_seen, excluded.last_seen)
  )
  select coalesce(sum(s.n), 0), array_agg(s.fingerprint) into v_causes, v_seen from sums s;
  update redrive.failure_group f set failing = x.n
  from (
    select distinct u.fingerprint, coalesce(m.n, 0) as n from unnest(v_changed || v_seen) u(fingerprint)
    left join redrive.failed_sum m on m.dimension = 'cause' and m.value = u.fingerprint) x
  where f.fingerprint = x.fingerprint and f.failing <> x.n;
  with gone as (
    delete from redrive.join_delta d where d.ctid = any (array(select x.ctid from redrive.join_delta x limit p_limit))
    returning *
  )
  select jsonb_agg(s.*) into v_arrived from (
    select g.join_id, sum(g.completed) as completed, sum(g.failed) as failed, sum(g.cancelled) as cancelled, count(*) as n
    from gone g group by g.join_id) s;
  if v_arrived is not null then
    v_joins := array(
      select j.id from redrive.task_join j
      where j.id = any (array(select a.join_id from jsonb_to_recordset(v_arrived) a(join_id uuid))) order by j.id for update);
    update redrive.task_join j set completed = j.completed + a.completed, failed = j.failed + a.failed,
      cancelled = j.cancelled + a.cancelled
    from jsonb_to_recordset(v_arrived) a(join_id uuid, completed bigint, failed bigint, cancelled bigint)
    where j.id = any (v_joins) and a.join_id = j.id;
    perform redrive.end_joins(v_joins);
    v_totals := v_totals + (select sum(a.n) from jsonb_to_recordset(v_arrived) a(n integer));
  end if;
  return v_totals + v_causes + v_failed;
end $$;

-- Day partitions of history: makes the coming ones, drops those older than p_keep_days. security definer, because only
-- the owner of a table may add partitions to it.
create function redrive.partitions(p_keep_days double precision) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_today constant date := (clock_timestamp() at time zone 'UTC')::date;
  v_day date;
  v_name text;
  v_changed integer := 0;
begin
  begin
    lock table redrive.partition_lock in exclusive mode nowait;
  exception when lock_not_available then
    return 0;  -- somebody else is at it
  end;
  for i in 0..3 loop
    v_day := v_today + i;
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    if to_regclass('redrive.' || v_name) is null then
      begin
        execute format('create table redrive.%I partition of redrive.history for values from (%L) to (%L)', v_name,
          v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
        v_changed := v_changed + 1;
      exception
        when check_violation then
          null;  -- the default partition already holds rows of that day: they stay there
        when lock_not_available then
          return v_changed;
      end;
    end if;
  end loop;
  for v_name in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'redrive.history'::regclass and c.relname ~ '^history_\d{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - ceil(p_keep_days)::integer
  loop
    begin
      execute format('drop table redrive.%I', v_name);
      v_changed := v_changed + 1;
    exception when lock_not_available then
      exit;
    end;
  end loop;
  return v_changed;
end $$;

-- Where the last piece ended; a day after its beginning a pass starts over, for tasks that have left meanwhile.
create function redrive.prune_from(p_name text) returns redrive.pruned
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
create function redrive.prune_keys(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
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
create function redrive.prune_attempts(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
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

-- A join is kept as long as one of its members is live: it may be retried, and arrive again.
create function redrive.prune_joins(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
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
      select p.id from piece p where coalesce(p.ended_at, p.created_at) < p_before
        and not exists (select 1 from redrive.task t where t.join_id = p.id)))
    returning 1
  ), last as (
    update redrive.pruned r set at = p.created_at, key = p.id::text
    from (select x.created_at, x.id from piece x order by x.created_at desc, x.id desc limit 1) p where r.name = 'join'
  )
  select (select count(*) from gone), (select count(*) >= p_limit from piece) into removed, more;
end $$;

-- In the order they were written, which is that of their times: no index by time has to be kept for it.
create function redrive.prune_dead_letters(p_before timestamptz, p_limit integer, out removed integer, out more boolean)
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
create function redrive.prune_causes(p_before timestamptz, p_noted_before timestamptz, p_limit integer,
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
          select 1 from redrive.record r where r.collection = 'group' and r.id = p.fingerprint))))
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
    delete from redrive.record r where r.collection = 'group' and r.id = any (v_gone);
  end if;
end $$;

-- Small documents: those that said themselves until when, and those of collections with a rule.
create function redrive.prune_records(p_rules jsonb, p_limit integer, out removed integer, out more boolean)
language plpgsql
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_rule record;
  v_n integer;
begin
  delete from redrive.record r where r.ctid = any (array(
    select x.ctid from redrive.record x where x.expires_at < v_now order by x.expires_at limit p_limit));
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
      order by x.updated_at limit p_limit));
    get diagnostics v_n = row_count;
    removed := removed + v_n;
    more := more or v_n >= p_limit;
  end loop;
end $$;

-- Remove what is past its keep (redrive.kernel.retention.Retention, as JSON). Bounded, so that it never holds locks for
-- long; "more" means "call again".
create function redrive.prune(p_keep jsonb, p_limit integer, out removed integer, out more boolean)
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
  loop
    removed := removed + v_part.removed;
    more := more or v_part.more;
  end loop;
  delete from redrive.worker w where w.seen_at < (v_before ->> 'worker_days')::timestamptz;
  delete from redrive.failure_hour f where f.ctid = any (array(
    select x.ctid from redrive.failure_hour x
    where x.hour < (v_before ->> 'trend_days')::timestamptz order by x.hour limit p_limit));
  get diagnostics v_hours = row_count;
  more := more or v_hours >= p_limit;
end $$;

-- Personal data goes: of finished tasks what they carried, of their attempts and dead letters what was said, their keys, and
-- rows of the audit log but for a digest (p_telling: and for what they tell of removals). Live tasks among p_ids are left alone. Returns how many, by place.
create function redrive.erase(p_ids uuid[], p_tombstone text, p_audit bigint[], p_digests text[], p_scope text,
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
begin
  update redrive.history h set payload = null, result = null, cancel_reason = null, trace_id = null, task_group = null,
    idempotency_key = null, facts = null, scope = case when h.scope is null then null else p_tombstone end,
    erased_at = clock_timestamp()
  where h.id = any (v_ids) and h.erased_at is null;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('tasks', v_n);
  update redrive.attempt a set message = 'erased', stack = null, error_summary = null
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
  -- What is enqueued at the end of a join, and is about this scope.
  update redrive.task_join j set on_complete = case when j.on_complete ->> 'scope' is distinct from p_scope then j.on_complete end,
    on_success = case when j.on_success ->> 'scope' is distinct from p_scope then j.on_success end
  where j.on_complete ->> 'scope' = p_scope or j.on_success ->> 'scope' = p_scope;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('joins', v_n);
  update redrive.hold h set reason = 'erased'
  from jsonb_array_elements(p_holds) x(hold) where h.target = x.hold ->> 0 and h.name = x.hold ->> 1;
  get diagnostics v_n = row_count;
  v_done := v_done || jsonb_build_object('holds', v_n);
  update redrive.audit a set reason = null, target = null, scope = null, trace_id = null, before = null, salt = null,
    after = case when a.id = any (p_telling) then a.after end, erased = u.digest
  from unnest(p_audit, p_digests) u(id, digest) where a.id = u.id and a.erased is null;
  get diagnostics v_n = row_count;
  return v_done || jsonb_build_object('audit', v_n);
end $$;

-- Nothing is open to everyone; what is granted to whom is in the next step.
revoke all on all functions in schema redrive from public;
select redrive.partitions(36500);
