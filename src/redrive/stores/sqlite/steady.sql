-- known: how far the clock was from the time since boot
select boot, apart, held_until from redrive_clock

-- forget: it is further or nearer now
delete from redrive_clock

-- know: how far it is now
insert into redrive_clock (boot, apart, held_until) values (?, ?, ?)

-- held: is it too early to remove something
select 1 from redrive_clock where held_until > ?

-- last_seen: when somebody worked here last
select max(seen_at) from redrive_worker

-- shift_leases: leases keep what was left of them
update redrive_task set lease_expires_at = lease_expires_at + ? where state = 'running' and lease_expires_at is not null

-- shift_waits: so do waits for another attempt, and tasks that were made by a clock that was ahead
update redrive_task set next_attempt_at = next_attempt_at + ?
where state = 'delayed' and next_attempt_at is not null and (last_attempt_at is not null or created_at > ?)

-- shift_workers: nobody was seen later than now, nor is it known any more who was silent for how long
update redrive_worker set seen_at = min(seen_at, ?1), beating_since = case when beating_since is not null then ?1 end,
  cut_off_at = cut_off_at + ?2
