create table redrive.orders_parcel (
  task_id  uuid primary key,
  name     text not null,
  join_id  uuid not null,
  state    text not null
);
create index orders_parcel_name on redrive.orders_parcel (name);
