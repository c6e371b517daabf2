drop table redrive.orders_parcel;
delete from redrive.reserved_kind where feature = 'orders';
