create table redrive.probe (
  seq bigint generated always as identity, task_id uuid not null, was text not null, state text not null, event text not null
);
