alter table redrive_kind drop column circuit;
drop table redrive_circuit;
