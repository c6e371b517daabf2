-- The cause that a failure is counted under: its own, or, where there is none yet, the one that an earlier version of the
-- algorithm has made for the same cause, so that its notes, mutes and owner stay.
create or replace function redrive.cause_of(p_fingerprint text, p_former jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((
    select n.name from (
      select p_fingerprint as name, 0::bigint as nth
      union all select f.name, f.nth from jsonb_array_elements_text(p_former) with ordinality f(name, nth)) n
    where exists (select 1 from redrive.failure_group g where g.fingerprint = n.name)
      or exists (select 1 from redrive.failure_delta d where d.fingerprint = n.name)
    order by n.nth limit 1), p_fingerprint)
$$;

create or replace function redrive.with_known_causes(p_moves jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_agg(case when x.move ? 'former' then x.move || jsonb_build_object(
      'fingerprint', redrive.cause_of(x.move ->> 'fingerprint', x.move -> 'former')) else x.move end order by x.nth)
  from jsonb_array_elements(p_moves) with ordinality x(move, nth)
$$;
