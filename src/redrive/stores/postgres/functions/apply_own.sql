-- What an application's own transaction can hold besides tasks: joins, tasks that are their members or that a feature reacts to,
-- money, and rows of features' tables. One statement, so that it is one transaction also where each statement is. It runs with
-- the caller's rights; the functions that it calls are the fleet's own. p_rows: a statement with one argument, and that argument.
create or replace function redrive.apply_own(
  p_new_joins jsonb, p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[],
  p_max_attempts integer[], p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[],
  p_scopes text[], p_traces text[], p_keys text[], p_features text[], p_facts jsonb[], p_joins uuid[], p_closed uuid[],
  p_postings jsonb, p_rows jsonb
) returns table (id uuid, existing uuid, conflict boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_posting record;
  v_rows record;
begin
  if p_new_joins is not null then perform redrive.open_joins(p_new_joins); end if;
  if cardinality(p_ids) > 0 then
    return query select a.id, a.existing, a.conflict from redrive.add(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
      p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, false, p_features, p_facts,
      p_joins) a;
  end if;
  if cardinality(p_closed) > 0 then perform redrive.close_joins(p_closed); end if;
  for v_posting in
    select * from jsonb_to_recordset(p_postings) x(key text, accounts text[], amounts bigint[], note text)
  loop
    perform redrive.post(v_posting.key, v_posting.accounts, v_posting.amounts, v_posting.note);
  end loop;
  for v_rows in select * from jsonb_to_recordset(p_rows) x(statement text, argument jsonb) loop
    execute v_rows.statement using v_rows.argument;
  end loop;
end $$;
