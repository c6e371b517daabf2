drop function redrive.renew(uuid[], uuid[], double precision, uuid[], jsonb[]);
drop function redrive.landed(uuid, uuid);
drop function redrive.is_kept(uuid);
drop function redrive.cycle(uuid[], uuid[], real[], jsonb[], jsonb, boolean, text, uuid, double precision, integer, text[],
  text[], text, text[], text[], integer[], bigint[], integer[], double precision[]);
drop function redrive.revive(jsonb, uuid[], text[]);
drop function redrive.move(jsonb, text[]);
drop function redrive.landing(uuid, redrive.state, redrive.state, text, text, integer, integer, integer, text, text, text, text, jsonb);
drop function redrive.regrouped(jsonb);
drop function redrive.group_of(text, jsonb);
drop function redrive.complete(uuid[], uuid[], real[], jsonb[], double precision[]);
drop function redrive.open_joins(jsonb);
drop function redrive.close_join(uuid);
drop function redrive.end_joins(uuid[]);
drop function redrive.arrive(uuid[], redrive.state[], redrive.state[]);
drop function redrive.free_places(text[]);
drop function redrive.claim(text, uuid, double precision, integer, text[], text[], text, boolean, text[], text[], integer[],
  bigint[], integer[]);
drop function redrive.candidates(integer, integer, boolean, text[], text[], text, text[], text[], text[], text[], integer[],
  bigint[], integer[]);
drop function redrive.open_lanes(text[], text[], text, text[], text[], text[], integer[], bigint[], integer[]);
drop type redrive.claimed;
drop function redrive.within_limit(jsonb);
