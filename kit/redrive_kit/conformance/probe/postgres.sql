-- seen: what the probe was told
insert into redrive.probe (task_id, was, state, event)
select x.task, x.was, x.state, x.event from jsonb_to_recordset($1) x(task uuid, was text, state text, event text)

-- all: everything it was told about one task
select was, state, event from redrive.probe where task_id = $1 order by seq

-- personal: nothing in it is about a person
select count(*) as n from redrive.probe where $1::jsonb is null

-- erase: so nothing goes
delete from redrive.probe where $1::jsonb is null

-- missing: a table that nobody has made
insert into redrive.probe_missing (task_id) values ($1::text)
