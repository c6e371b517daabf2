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
alter table redrive_kind add column circuit text;  -- the open circuit that the kind waits for
