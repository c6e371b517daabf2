-- seen: what the probe was told
insert into redrive_probe (task_id, was, state, event)
select v.value ->> 'task', v.value ->> 'was', v.value ->> 'state', v.value ->> 'event' from json_each(?) v

-- all: everything it was told about one task
select was, state, event from redrive_probe where task_id = ? order by rowid
