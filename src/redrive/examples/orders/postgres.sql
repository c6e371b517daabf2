-- parcels_placed: parcels of a new order
insert into redrive.orders_parcel (task_id, name, join_id, state)
select x.task, x."order", x."join", 'queued' from jsonb_to_recordset($1) x(task uuid, "order" text, "join" uuid)

-- parcel_moved: where parcels are now
update redrive.orders_parcel p set state = x.state from jsonb_to_recordset($1) x(task uuid, state text) where p.task_id = x.task

-- order_states: how many parcels of an order are in which state
select state, count(*) as n from redrive.orders_parcel where name = $1 group by state order by state

-- unfinished: orders with parcels to go
select name, count(*) as n from redrive.orders_parcel where state not in ('completed', 'cancelled') group by name order by name
