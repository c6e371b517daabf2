drop function redrive.grant_worker(text);
drop function redrive.grant_producer(text);
drop function redrive.prune(double precision, double precision, integer);
drop function redrive.partitions(double precision);
drop function redrive.fold();
drop function redrive.post(text, text[], bigint[], text);
drop function redrive.fire(text, timestamptz, timestamptz);
drop function redrive.declare_schedules(text, jsonb);
drop function redrive.request_cancel(uuid, text, text);
drop function redrive.recount(text);
drop function redrive.set_limit(text, integer, integer, text);
drop function redrive.set_hold(text, text, boolean, text, text);
drop function redrive.expired(timestamptz, integer);
drop function redrive.tick(text, text, integer, text[], integer, integer, text, boolean, text[], double precision[],
  timestamptz, integer);
