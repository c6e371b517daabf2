create table redrive_probe (task_id text not null, was text not null, state text not null, event text not null) strict;
