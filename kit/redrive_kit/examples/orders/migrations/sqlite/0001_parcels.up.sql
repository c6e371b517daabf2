create table redrive_orders_parcel (
  task_id   text primary key not null,
  name      text not null,
  customer  text not null,
  join_id   text not null,
  state     text not null,
  moved_at  integer not null default (unixepoch() * 1000000)
) strict;
create index redrive_orders_parcel_name on redrive_orders_parcel (name);
create index redrive_orders_parcel_customer on redrive_orders_parcel (customer);
create index redrive_orders_parcel_moved_at on redrive_orders_parcel (moved_at);
