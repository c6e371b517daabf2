drop table redrive_probe;
