create table redrive_orders_parcel (
  task_id  text primary key not null,
  name     text not null,
  join_id  text not null,
  state    text not null
) strict;
create index redrive_orders_parcel_name on redrive_orders_parcel (name);
