-- parcels_placed: parcels of a new order
insert into redrive_orders_parcel (task_id, name, customer, join_id, state)
select v.value ->> 'task', v.value ->> 'order', v.value ->> 'customer', v.value ->> 'join', 'queued' from json_each(?) v

-- parcel_moved: where parcels are now
update redrive_orders_parcel set state = v.state, moved_at = unixepoch() * 1000000
from (select j.value ->> 'task' as task, j.value ->> 'state' as state from json_each(?) j) v
where redrive_orders_parcel.task_id = v.task

-- orders: the latest orders, and how many of their parcels have ended
select name, count(*) as parcels, sum(state in ('completed', 'cancelled')) as ended
from redrive_orders_parcel group by name order by max(moved_at) desc, name limit 100

-- order_states: how many parcels of an order are in which state
select state, count(*) as n from redrive_orders_parcel where name = ? group by state order by state

-- late: orders with parcels that have not moved for so many hours
select name, count(*) as n from redrive_orders_parcel
where state not in ('completed', 'cancelled') and moved_at <= (unixepoch() - ? * 3600) * 1000000
group by name order by name limit 20

-- prune_parcels: parcels that ended before this time, so many at once
delete from redrive_orders_parcel where task_id in (
  select task_id from redrive_orders_parcel
  where moved_at < ?1 and state in ('completed', 'cancelled') order by moved_at limit ?2)

-- personal: how many rows are about a customer, or about tasks
select count(*) as n from redrive_orders_parcel where customer not like 'erased:%'
  and (customer = ?1 ->> 'scope' or task_id in (select value from json_each(?1, '$.tasks')))

-- erase: the same, emptied, so many at once
update redrive_orders_parcel set name = 'erased', customer = ?1 ->> 'tombstone' where task_id in (
  select task_id from redrive_orders_parcel where customer not like 'erased:%'
    and (customer = ?1 ->> 'scope' or task_id in (select value from json_each(?1, '$.tasks')))
  limit (?1 ->> 'limit'))
