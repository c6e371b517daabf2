drop table redrive.probe;
