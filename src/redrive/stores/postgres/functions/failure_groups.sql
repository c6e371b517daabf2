-- The cause that a failure is counted under: its own, or, where there is none yet, the one that an earlier version of the
-- algorithm has made for the same cause, so that its notes, mutes and owner stay. Where a newer algorithm takes several for
-- one, that is the one which was found first for it ("alias"); but one of which somebody has said something goes on by itself,
-- whatever its new name: a mute or an owner is of what was known by its old one, and of nothing else.
create or replace function redrive.cause_of(p_fingerprint text, p_former jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((
    select n.name from (
      select f.name, -3::bigint as nth from jsonb_array_elements_text(p_former) f(name)
      where exists (select 1 from redrive.record r where r.collection = 'cause' and r.id = f.name)
      union all select p_fingerprint, -2
      union all (select g.fingerprint, -1 from redrive.failure_group g where g.alias = p_fingerprint order by g.first_seen, 1 limit 1)
      union all (select d.fingerprint, 0 from redrive.failure_delta d where d.alias = p_fingerprint order by d.at, 1 limit 1)
      union all select f.name, f.nth from jsonb_array_elements_text(p_former) with ordinality f(name, nth)) n
    where exists (select 1 from redrive.failure_group g where g.fingerprint = n.name)
      or exists (select 1 from redrive.failure_delta d where d.fingerprint = n.name)
    order by n.nth limit 1), p_fingerprint)
$$;

create or replace function redrive.with_known_causes(p_moves jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_agg(case when c.name <> x.move ->> 'fingerprint'
      then x.move || jsonb_build_object('fingerprint', c.name) || case
        when exists (select 1 from redrive.record r where r.collection = 'cause' and r.id = c.name) then '{}'::jsonb
        else jsonb_build_object('alias', x.move ->> 'fingerprint') end
      else x.move end order by x.nth)
  from jsonb_array_elements(p_moves) with ordinality x(move, nth)
  left join lateral (
    select redrive.cause_of(x.move ->> 'fingerprint', x.move -> 'former') as name where x.move ? 'former') c on true
$$;
