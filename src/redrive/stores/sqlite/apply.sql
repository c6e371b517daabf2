-- drain: a worker is to end; it hears of it with its next beat
update redrive_worker set drain_at = ?, drain_by = ?, drain_reason = ? where id = ? and drain_at is null and beats_ms is not null

-- hold_on: pause
insert into redrive_hold (target, name, actor, reason, at) values (?, ?, ?, ?, ?) on conflict (target, name) do nothing

-- hold_off: resume
delete from redrive_hold where target = ? and name = ?

-- lane: a kind gets a lane of its own
insert into redrive_kind (kind) values (?) on conflict (kind) do nothing

-- lanes: the same for several kinds
insert into redrive_kind (kind) select value from json_each(?) where true on conflict (kind) do nothing

-- resume: a group's tasks are to come back
insert into redrive_resuming (task_group) values (?) on conflict do nothing

-- stay: the group is held again before all of them were back
delete from redrive_resuming where task_group = ?

-- circuit_new: a circuit that must not exist yet
insert into redrive_circuit (name, version, kinds, open, since, until, reason, actor, failed_probes, opened)
values (?1, 1, ?2, ?3, ?9, ?9 + ?4, ?5, ?6, ?7, ?8) on conflict (name) do nothing

-- circuit: one that must still be the one that was seen
update redrive_circuit set version = version + 1, kinds = ?2, open = ?3,
  since = case when open = ?3 then since else ?9 end, until = case when ?3 then coalesce(?9 + ?4, until) end,
  reason = ?5, actor = ?6, failed_probes = ?7, opened = ?8,
  token = case when ?3 and coalesce(?4, 0) = 0 then token end
where name = ?1 and version = ?10

-- circuit_kinds: kinds wait for an open circuit, or do so no more
update redrive_kind set circuit = case when ?3 and kind in (select value from json_each(?2)) then ?1 end
where circuit = ?1 or (?3 and kind in (select value from json_each(?2)))

-- limit: what a kind is allowed now
select concurrency, rate_ms, actor from redrive_kind where kind = ?

-- limit_set: what a kind is allowed from now on
insert into redrive_kind (kind, concurrency, rate_ms, actor) values (?, ?, ?, ?)
on conflict (kind) do update set concurrency = excluded.concurrency, rate_ms = excluded.rate_ms, actor = excluded.actor,
  next_at = case when excluded.rate_ms is null then null else next_at end

-- count_running: a kind's running tasks
select count(*) from redrive_task where state = 'running' and kind = ?

-- set_running: a kind's places in use
update redrive_kind set running = ? where kind = ? and running <> ?

-- limited: kinds whose places are counted
select kind, running from redrive_kind where concurrency is not null

-- cancel_requested: when a running task was asked to stop, if it was
select cancel_requested_at from redrive_task where id = ? and state = 'running'

-- request_cancel: ask for a running task to stop
update redrive_task set cancel_requested_at = ? where id = ? and state = 'running'

-- undeclare: schedules an application no longer has
delete from redrive_schedule where owner = ? and name not in (select value from json_each(?))

-- declare: a schedule whose definition is unchanged keeps its next run
insert into redrive_schedule (name, owner, kind, cron, timezone, missed, queue, payload, priority, max_attempts, next_at)
select json_extract(v.value, '$[0]'), ?, json_extract(v.value, '$[1]'), json_extract(v.value, '$[2]'),
  json_extract(v.value, '$[3]'), json_extract(v.value, '$[4]'), json_extract(v.value, '$[5]'),
  json_extract(v.value, '$[6]'), json_extract(v.value, '$[7]'), json_extract(v.value, '$[8]'),
  json_extract(v.value, '$[9]')
from json_each(?) v where true
on conflict (name) do update set owner = excluded.owner, kind = excluded.kind, missed = excluded.missed,
  queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, max_attempts = excluded.max_attempts,
  next_at = case when cron = excluded.cron and timezone = excluded.timezone then min(next_at, excluded.next_at) else excluded.next_at end,
  cron = excluded.cron, timezone = excluded.timezone

-- fire: one caller per planned run changes a row
update redrive_schedule set next_at = ?, last_at = ? where name = ? and next_at = ?

-- posting: a movement of money, once per key
insert into redrive_posting (key, at, note) values (?, ?, ?) on conflict (key) do nothing

-- posted: what a key has moved
select account, amount from redrive_entry where posting = ?

-- accounts: accounts that are used for the first time
insert into redrive_account (name) select json_extract(v.value, '$[0]') from json_each(?) v where true on conflict (name) do nothing

-- uncountable: the account that would have more than can be counted; asked only when that was refused
select a.name from redrive_account a join (select value ->> 0 as name, value ->> 1 as amount from json_each(?1)) v on v.name = a.name
where typeof(a.balance + v.amount) = 'real' limit 1

-- balances: apply sums per account
update redrive_account set balance = balance + v.amount
from (select json_extract(j.value, '$[0]') as name, json_extract(j.value, '$[1]') as amount from json_each(?) j) v
where redrive_account.name = v.name

-- overdrawn: the first account that has too little for these sums; asked only when they were refused
select a.name from redrive_account a
join (select json_extract(j.value, '$[0]') as name, json_extract(j.value, '$[1]') as amount from json_each(?) j) v
  on v.name = a.name
where a.balance + v.amount < 0 and a.name not like 'system:%' order by a.name limit 1

-- entries: what was moved
insert into redrive_entry (posting, account, amount)
select ?, json_extract(v.value, '$[0]'), json_extract(v.value, '$[1]') from json_each(?) v

-- states: where these tasks are; an id that is in history more than once is its newest row
select id, state, feature from redrive_task where id in (select value from json_each(?))
union all select id, case when erased_at is null then state else 'erased' end, feature from redrive_history h
where id in (select value from json_each(?)) and not exists (select 1 from redrive_task t where t.id = h.id)
  and not exists (select 1 from redrive_history n where n.id = h.id and (n.finished_at, n.rowid) > (h.finished_at, h.rowid))

-- put_new: a document that must not exist yet
insert into redrive_record (state, updated_at, expires_at, body, collection, id, created_at, version)
values (?, ?, ?, ?, ?, ?, ?, 1) on conflict do nothing

-- put: a document that must still be the one that was seen
update redrive_record set state = ?, updated_at = ?, expires_at = ?, body = ?, version = version + 1
where collection = ? and id = ? and version = ?

-- forget_audit: rows past their keep
delete from redrive_audit where id in (select value from json_each(?)) returning id

-- last_audit: the number of the newest row; numbers are never used twice
select coalesce((select seq from sqlite_sequence where name = 'redrive_audit'), 0)

-- audit_after: rows that were added since
select * from redrive_audit where id > ? order by id
