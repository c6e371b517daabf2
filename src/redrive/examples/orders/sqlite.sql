-- parcels_placed: parcels of a new order
insert into redrive_orders_parcel (task_id, name, join_id, state)
select v.value ->> 'task', v.value ->> 'order', v.value ->> 'join', 'queued' from json_each(?) v

-- parcel_moved: where parcels are now
update redrive_orders_parcel set state = v.state
from (select j.value ->> 'task' as task, j.value ->> 'state' as state from json_each(?) j) v
where redrive_orders_parcel.task_id = v.task

-- order_states: how many parcels of an order are in which state
select state, count(*) as n from redrive_orders_parcel where name = ? group by state order by state

-- unfinished: orders with parcels to go
select name, count(*) as n from redrive_orders_parcel where state not in ('completed', 'cancelled') group by name order by name
