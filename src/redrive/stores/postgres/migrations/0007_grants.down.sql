drop function redrive.grant_viewer(text);
drop function redrive.grant_worker(text);
drop function redrive.grant_producer(text);
