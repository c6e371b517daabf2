-- What an application's own transaction can hold besides tasks: joins, tasks that are their members or that a feature reacts to,
-- money, and rows of features' tables. One statement, so that it is one transaction also where each statement is. It runs with
-- the caller's rights; the functions that it calls are the fleet's own. p_rows: a statement with one argument, and that argument.
-- p_all_or_none: nothing if one key names other work, and the caller's transaction goes on; null is the inner half of that.
-- Rows without an id name postings that were there.
create or replace function redrive.apply_own(
  p_new_joins jsonb, p_ids uuid[], p_kinds text[], p_queues text[], p_payloads jsonb[], p_priorities integer[],
  p_max_attempts integer[], p_delays double precision[], p_run_ats timestamptz[], p_timeouts_ms integer[], p_groups text[],
  p_scopes text[], p_traces text[], p_keys text[], p_features text[], p_facts jsonb[], p_joins uuid[], p_closed uuid[],
  p_postings jsonb, p_rows jsonb, p_all_or_none boolean
) returns table (id uuid, existing uuid, conflict boolean, repeated text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_rows record;
  v_known jsonb;
  v_refused text;
begin
  if p_all_or_none then
    begin
      return query select * from redrive.apply_own(p_new_joins, p_ids, p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts,
        p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, p_features, p_facts, p_joins, p_closed, p_postings,
        p_rows, null);
    exception when sqlstate 'RD001' then
      get stacked diagnostics v_refused = pg_exception_detail;
      return query select x.*, null::text from jsonb_to_recordset(v_refused::jsonb) x(id uuid, existing uuid, conflict boolean);
    end;
    return;
  end if;
  if p_new_joins is not null then perform redrive.open_joins(p_new_joins); end if;
  if cardinality(p_ids) > 0 then
    select jsonb_agg(to_jsonb(a)) into v_known from redrive.add(p_ids, p_kinds, p_queues, p_payloads, p_priorities,
      p_max_attempts, p_delays, p_run_ats, p_timeouts_ms, p_groups, p_scopes, p_traces, p_keys, false, p_features, p_facts,
      p_joins) a;
    if p_all_or_none is null and v_known @? '$[*] ? (@.conflict == true)' then
      raise exception 'a key names other work' using errcode = 'RD001', detail = v_known::text;
    end if;
    return query select x.*, null::text from jsonb_to_recordset(v_known) x(id uuid, existing uuid, conflict boolean);
  end if;
  if cardinality(p_closed) > 0 then perform redrive.close_joins(p_closed); end if;
  if jsonb_array_length(p_postings) > 0 then
    return query select null::uuid, null::uuid, null::boolean, k from unnest(redrive.post(p_postings)) k;
  end if;
  for v_rows in select * from jsonb_to_recordset(p_rows) x(statement text, argument jsonb) loop
    execute v_rows.statement using v_rows.argument;
  end loop;
end $$;
