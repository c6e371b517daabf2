create table redrive.orders_parcel (
  task_id   uuid primary key,
  name      text not null,
  customer  text not null,
  join_id   uuid not null,
  state     text not null,
  moved_at  timestamptz not null default clock_timestamp()
);
create index orders_parcel_name on redrive.orders_parcel (name);
create index orders_parcel_customer on redrive.orders_parcel (customer);
create index orders_parcel_moved_at on redrive.orders_parcel (moved_at);

-- Nobody but the feature enqueues these.
insert into redrive.reserved_kind (begins, feature) values
  ('ORDERS_', 'orders');
