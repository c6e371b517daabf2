-- The cause that a failure is counted under: its own, or, where there is none yet, the one that an earlier version of the
-- rules has made for failures that look the same to everybody, so that its notes, mutes and owner stay. It is known by both
-- names from then on ("alias"). Several that a newer version takes for one go on as the one of which somebody has said
-- something, else as the latest.
create or replace function redrive.known_cause(p_fingerprint text, p_code text, p_summary jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(
    (select g.fingerprint from redrive.failure_group g where g.fingerprint = p_fingerprint),
    (select d.fingerprint from redrive.failure_delta d where d.fingerprint = p_fingerprint limit 1),
    (select g.fingerprint from redrive.failure_group g where g.alias = p_fingerprint limit 1),
    (select d.fingerprint from redrive.failure_delta d where d.alias = p_fingerprint limit 1),
    (select g.fingerprint from redrive.failure_group g
     where g.fingerprint < '4' and g.code = p_code and g.error_summary = p_summary
     order by exists (select 1 from redrive.record r where r.collection = 'cause' and r.id = g.fingerprint) desc,
       g.last_seen desc, 1 limit 1),
    p_fingerprint)
$$;

create or replace function redrive.with_known_causes(p_moves jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_agg(case when c.name <> x.move ->> 'fingerprint'
      then x.move || jsonb_build_object('fingerprint', c.name, 'alias', x.move ->> 'fingerprint')
      else x.move end order by x.nth)
  from jsonb_array_elements(p_moves) with ordinality x(move, nth)
  left join lateral (
    select redrive.known_cause(x.move ->> 'fingerprint', x.move ->> 'code', x.move -> 'summary') as name
    where x.move ->> 'fingerprint' >= '4') c on true
$$;
