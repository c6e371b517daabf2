drop function redrive.mend(uuid);
drop function redrive.suspects(text[], integer);
drop function redrive.trial(uuid);
drop function redrive.usable_json(jsonb);
drop function redrive.usable_time(timestamptz, timestamptz);
drop function redrive.cut(text, integer);
