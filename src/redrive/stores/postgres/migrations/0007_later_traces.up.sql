-- From here on written by ./dev docs, from functions/*.sql: edit those. ./dev check fails when the two differ.

-- functions/checks.sql

-- Without a repetition count, which makes a regular expression twenty times slower.
create or replace function redrive.check_name(p_what text, p_name text) returns void
language plpgsql immutable as $$
begin
  if pg_catalog.octet_length(p_name) operator(pg_catalog.<=) 120
    and p_name operator(pg_catalog.~) '^[A-Za-z0-9_][A-Za-z0-9_.:-]*$' then return; end if;
  raise exception '% % is not a valid name', p_what, coalesce(pg_catalog.quote_literal(pg_catalog.left(p_name, 200)), 'null') using
    errcode = 'invalid_parameter_value',
    hint = 'use 1-120 letters, digits, ''_'', ''-'', ''.'' or '':'', starting with a letter, digit or ''_''';
end $$;

-- A free label: no control characters, line separators, or characters that turn the direction of the text around them.
create or replace function redrive.check_label(p_what text, p_value text) returns void
language plpgsql immutable as $$
begin
  if p_value is null or pg_catalog.char_length(p_value) operator(pg_catalog.>) 0
    and pg_catalog.char_length(p_value) operator(pg_catalog.<=) 512
    and pg_catalog.octet_length(p_value) operator(pg_catalog.<=) 1536
    and p_value operator(pg_catalog.!~) '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]' then
    return;
  end if;
  raise exception '% must be text of 1-512 characters (at most 1,536 bytes) without control characters, not %', p_what,
    pg_catalog.quote_literal(pg_catalog.left(p_value, 80)) using
    errcode = 'invalid_parameter_value', hint = 'use a shorter label, without line breaks';
end $$;

-- The same rules for both forms: what gets in must be something that a worker can claim and an operator can list.
create or replace function redrive.check_numbers(p_max_attempts integer[], p_delays double precision[], p_run_ats timestamptz[],
  p_timeouts_ms integer[], p_priorities integer[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_problem text;
begin
  v_problem := case
    when exists (select 1 from unnest(p_max_attempts) n where n not between 1 and 1000000) then
      'max_attempts must be at least 1, and at most 1,000,000'
    when exists (select 1 from unnest(p_delays) d where not d between 0 and 316224000) then
      'delay must be from 0 to 10 years'
    when exists (select 1 from unnest(p_run_ats) r
      where r > clock_timestamp() + interval '3660 days' or r < '1970-01-01+00') then
      'run_at must be after 1970 and at most 10 years ahead'
    when exists (select 1 from unnest(p_timeouts_ms) t where t not between 1 and 2000000000) then
      'timeout must be from 1 ms to 2,000,000 s'
    when exists (select 1 from unnest(p_priorities) p where p not between -32768 and 32767) then
      'priority must be from -32,768 to 32,767'
  end;
  if v_problem is not null then
    raise exception '%', v_problem using errcode = 'invalid_parameter_value';
  end if;
end $$;

-- A timeout in milliseconds; what no number can hold becomes one that is refused.
create or replace function redrive.milliseconds(p_time interval) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_time is not null then least(greatest(extract(epoch from p_time) * 1000, -1), 2147483647)::integer end
$$;

-- What was given as a trace, if that is a whole context: a W3C traceparent, with its tracestate behind a space. Else null.
create or replace function redrive.trace_parent(p_trace text) returns text
language sql immutable strict set search_path = pg_catalog, pg_temp as $$
  -- what later versions add to the four fields of 00 comes behind a dash
  select case when (substr(p_trace, 56, 1) in ('', ' ') or (substr(p_trace, 56, 1) = '-' and left(p_trace, 2) <> '00'))
    and substr(p_trace, 36, 1) = '-' and substr(p_trace, 53, 1) = '-' then
    case when left(p_trace, 55) ~ '^[0-9a-f][0-9a-f]-[0-9a-f]+-[0-9a-f]+-[0-9a-f][0-9a-f]$' and left(p_trace, 2) <> 'ff'
      and substr(p_trace, 4, 32) <> repeat('0', 32) and substr(p_trace, 37, 16) <> repeat('0', 16) then p_trace end
  end
$$;

-- The id of a trace, which its tasks are found by.
create or replace function redrive.trace_id(p_trace text) returns text
language sql immutable strict set search_path = pg_catalog, pg_temp as $$
  select case when redrive.trace_parent(p_trace) is null then p_trace else substr(p_trace, 4, 32) end
$$;

-- Nothing is open to everyone, not even until the last step.
revoke all on all functions in schema redrive from public;
