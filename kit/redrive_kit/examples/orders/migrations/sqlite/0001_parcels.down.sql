drop table redrive_orders_parcel;
