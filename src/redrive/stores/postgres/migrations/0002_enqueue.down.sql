drop function redrive.enqueue(text, jsonb, text, integer, integer, interval, timestamptz, interval, text, text, text, text, uuid);
drop function redrive.enqueue_with_options(text, jsonb, text, integer, integer, interval, timestamptz, interval, text, text, text,
  text, uuid);
drop function redrive.enqueue(uuid[], text[], text[], jsonb[], integer[], integer[], double precision[], timestamptz[],
  integer[], text[], text[], text[], text[], boolean);
drop function redrive.add(uuid[], text[], text[], jsonb[], integer[], integer[], double precision[], timestamptz[],
  integer[], text[], text[], text[], text[], boolean, text[], jsonb[], uuid[]);
drop function redrive.add_members(uuid[]);
drop function redrive.refuse_finished(uuid[]);
drop function redrive.id_from(double precision);
drop function redrive.new_id();
drop function redrive.digest(text, jsonb);
drop function redrive.milliseconds(interval);
drop function redrive.check_numbers(integer[], double precision[], timestamptz[], integer[], integer[]);
drop function redrive.check_label(text, text);
drop function redrive.check_name(text, text);
drop function redrive.wake_due(text, timestamptz);
drop function redrive.wake(text, bigint);
