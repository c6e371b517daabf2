-- parcels_placed: parcels of a new order
insert into redrive.orders_parcel (task_id, name, customer, join_id, state)
select x.task, x."order", x.customer, x."join", 'queued'
from jsonb_to_recordset($1) x(task uuid, "order" text, customer text, "join" uuid)

-- parcel_moved: where parcels are now
update redrive.orders_parcel p set state = x.state, moved_at = clock_timestamp()
from jsonb_to_recordset($1) x(task uuid, state text) where p.task_id = x.task

-- orders: the latest orders, and how many of their parcels have ended
select name, count(*) as parcels, count(*) filter (where state in ('completed', 'cancelled')) as ended
from redrive.orders_parcel group by name order by max(moved_at) desc, name limit 100

-- order_states: how many parcels of an order are in which state
select state, count(*) as n from redrive.orders_parcel where name = $1 group by state order by state

-- late: orders with parcels that have not moved for so many hours
select name, count(*) as n from redrive.orders_parcel
where state not in ('completed', 'cancelled') and moved_at <= clock_timestamp() - $1::double precision * interval '1 hour'
group by name order by name limit 20

-- prune_parcels: parcels that ended before this time, so many at once
delete from redrive.orders_parcel where task_id = any (array(
  select task_id from redrive.orders_parcel
  where moved_at < $1 and state in ('completed', 'cancelled') order by moved_at limit $2))

-- personal: how many rows are about a customer, or about tasks
select count(*) as n from redrive.orders_parcel where customer not like 'erased:%' and (customer = $1::jsonb ->> 'scope'
  or task_id in (select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t))

-- erase: the same, emptied, so many at once
update redrive.orders_parcel set name = 'erased', customer = $1::jsonb ->> 'tombstone' where task_id = any (array(
  select task_id from redrive.orders_parcel where customer not like 'erased:%' and (customer = $1::jsonb ->> 'scope'
    or task_id in (select t.value::uuid from jsonb_array_elements_text($1::jsonb -> 'tasks') t))
  limit ($1::jsonb ->> 'limit')::bigint))
