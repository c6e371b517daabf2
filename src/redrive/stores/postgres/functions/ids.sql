-- The lowest id that can be made so many seconds from now, as the client library makes them. Qualified, not with a
-- search_path: it is on the hot path.
create or replace function redrive.id_from(p_seconds double precision) returns uuid
language sql volatile as $$
  select (pg_catalog.lpad(pg_catalog.to_hex(((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
    operator(pg_catalog.+) p_seconds) operator(pg_catalog.*) 1000)::pg_catalog.int8), 12, '0')
    operator(pg_catalog.||) '00000000000000000000')::pg_catalog.uuid
$$;

-- An id like the client library's: version 7, so that rows and their index entries arrive in order.
-- PL/pgSQL, which keeps its plan: in SQL it would cost as much as the insert.
create or replace function redrive.new_id() returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return encode(
    set_byte(
      overlay(uuid_send(gen_random_uuid())
        placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112),
    'hex')::uuid;
end $$;
