-- limit: how many milliseconds each statement of this transaction has
select set_config('statement_timeout', $1, true);

-- now: the server's clock
select clock_timestamp();

-- identity: which server this is, since it was started, and which of its databases; everybody may ask
select extract(epoch from pg_postmaster_start_time())::text || '/' || d.oid
from pg_database d where d.datname = current_database();

-- oldest: since when the first runnable task of each queue waits; one step in the index for each lane
with recursive lanes as (
  (select t.queue, t.lane from redrive.task t where t.state = 'queued' order by t.queue, t.lane limit 1)
  union all
  select n.queue, n.lane from lanes l cross join lateral (
    select t.queue, t.lane from redrive.task t where t.state = 'queued' and (t.queue, t.lane) > (l.queue, l.lane)
    order by t.queue, t.lane limit 1) n
)
select l.queue, min(f.since) as since from lanes l cross join lateral (
  select greatest(t.created_at, t.run_at, t.last_attempt_at, t.last_replayed_at) as since from redrive.task t
  where t.state = 'queued' and t.queue = l.queue and t.lane = l.lane order by t.priority, t.position limit 1) f
group by l.queue;

-- expired: leases that ran out and that nobody has recovered, by feature
select x.feature, count(*) as n, min(x.lease_expires_at) as oldest from (
  select t.feature, t.lease_expires_at from redrive.task t
  where t.state = 'running' and t.lease_expires_at < (select clock_timestamp()) order by t.lease_expires_at limit 1000) x group by x.feature;

-- unknown: tasks of features for which no worker has the duty of recovering; one step in the index for each feature
with recursive names as (
  (select t.feature from redrive.task t where t.feature is not null and t.state <> 'failed' order by t.feature limit 1)
  union all
  select n.feature from names f cross join lateral (
    select t.feature from redrive.task t where t.feature > f.feature and t.feature is not null and t.state <> 'failed'
    order by t.feature limit 1) n
)
select f.feature, (
  select count(*) from (
    select 1 from redrive.task t
    where t.feature = f.feature and t.feature is not null and t.state <> 'failed' limit 1000) x) as n
from names f where not exists (
  select 1 from redrive.duty d where d.name = 'recover:' || f.feature and d.next_at > clock_timestamp() - interval '1 min');

-- transactions: who holds back the removal of dead rows
select a.pid, a.usename::text, a.application_name, a.xact_start from pg_stat_activity a
where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
order by a.xact_start limit 5;

-- dead_rows: what vacuum has not removed yet
select s.relname::text, s.n_dead_tup as dead, s.n_live_tup as live from pg_stat_user_tables s
where s.schemaname = 'redrive' order by s.n_dead_tup desc limit 5;

-- size: of the whole database, in bytes
select pg_database_size(current_database());

-- faults: joins whose end could not be followed
select id, fault from redrive.task_join where fault is not null order by id limit 20;

-- waiting: open joins that are a week old
select count(*) from (select 1 from redrive.task_join where ended_at is null and is_open and created_at < clock_timestamp() - interval '7 days' limit 1000) x;

-- indexes: those there are; one of all days is valid only if each day has it, and days before its step may do without
select c.relname::text as name, i.indisvalid or c.relname = 'history_members' as valid from pg_index i join pg_class c on c.oid = i.indexrelid
join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'redrive' and c.relname not like 'history_2%';

-- connections: used, and how many there may be
select (select count(*) from pg_stat_activity where backend_type = 'client backend') as used,
  current_setting('max_connections')::integer as most;

-- hint: to ourselves
select pg_notify($1, '');
