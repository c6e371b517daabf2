drop table redrive.orders_parcel;
