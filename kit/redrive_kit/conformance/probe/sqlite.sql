-- seen: what the probe was told
insert into redrive_probe (task_id, was, state, event)
select v.value ->> 'task', v.value ->> 'was', v.value ->> 'state', v.value ->> 'event' from json_each(?) v

-- all: everything it was told about one task
select was, state, event from redrive_probe where task_id = ? order by rowid

-- personal: nothing in it is about a person
select count(*) as n from redrive_probe where ? is null

-- erase: so nothing goes
delete from redrive_probe where ? is null

-- missing: a table that nobody has made
insert into redrive_probe_missing (task_id) values (?)
