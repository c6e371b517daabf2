-- Workers beat apart from what they run, and those that fall silent are told from those that only rest.

alter table redrive_worker add column beats_ms integer;       -- how often it beats, apart from its loop; null: only with its ticks
alter table redrive_worker add column beating_since integer;  -- no beat of its own has come late since then
alter table redrive_worker add column dead_at integer;        -- when others declared it dead; its next beat takes that back
alter table redrive_worker add column stalled_ms integer not null default 0; -- how long its event loop had not answered when it beat last
alter table redrive_worker add column drain_at integer;       -- when somebody asked it to end
alter table redrive_worker add column drain_by text;
alter table redrive_worker add column drain_reason text;
alter table redrive_task add column deaths integer not null default 0; -- workers that were lost while they had it
alter table redrive_task add column apart integer not null default 0; -- its worker has not begun it yet: it waits to be alone
