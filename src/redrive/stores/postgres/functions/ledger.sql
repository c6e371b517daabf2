-- Movements of money, in their order; returns the keys that were posted before. The entries of each add up to zero; so does the
-- table. All keys first, then all accounts, each in one order for everybody: whoever has the same ones waits, and cannot deadlock.
create or replace function redrive.post(p_postings jsonb) returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_new text[];
  v_repeated text[] := '{}';
  v_posting record;
begin
  with made as (
    insert into redrive.posting (key, at, note)
    select x.key, clock_timestamp(), max(x.note) from jsonb_to_recordset(p_postings) x(key text, note text)
    group by x.key order by x.key
    on conflict do nothing returning key
  )
  select coalesce(array_agg(m.key), '{}') into v_new from made m;
  insert into redrive.account (name)
  select distinct a.name from jsonb_to_recordset(p_postings) x(key text, accounts text[]) cross join unnest(x.accounts) a(name)
  where x.key = any (v_new) order by a.name on conflict do nothing;
  perform 1 from redrive.account c
  where c.name = any (array(
    select a.name from jsonb_to_recordset(p_postings) x(key text, accounts text[]) cross join unnest(x.accounts) a(name)
    where x.key = any (v_new)))
  order by c.name for update;
  for v_posting in
    select x.key, x.accounts, x.amounts
    from rows from (jsonb_to_recordset(p_postings) as (key text, accounts text[], amounts bigint[])) with ordinality
      x(key, accounts, amounts, nth) order by x.nth
  loop
    if v_posting.key = any (v_new) then
      v_new := array_remove(v_new, v_posting.key);
      perform redrive.post_one(v_posting.key, v_posting.accounts, v_posting.amounts);
    else
      perform redrive.check_repeated(v_posting.key, v_posting.accounts, v_posting.amounts);
      v_repeated := v_repeated || v_posting.key;
    end if;
  end loop;
  return v_repeated;
end $$;

-- One movement, whose accounts are there and locked.
create or replace function redrive.post_one(p_key text, p_accounts text[], p_amounts bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_full text;
begin
  if (select sum(a) from unnest(p_amounts) a) is distinct from 0 then
    raise exception 'posting % does not add up to zero', quote_literal(p_key) using errcode = 'check_violation';
  end if;
  select c.name into v_full from redrive.account c
  join (select x.account, sum(x.amount) as amount from unnest(p_accounts, p_amounts) x(account, amount) group by x.account) u on c.name = u.account
  where c.balance + u.amount not between -9223372036854775807 and 9223372036854775807 limit 1;
  if v_full is not null then
    raise exception 'account % would have more than can be counted', v_full using
      errcode = 'invalid_parameter_value', hint = 'no account holds 2^63 or more, neither below nor above zero';
  end if;
  update redrive.account c set balance = c.balance + u.amount
  from (select x.account, sum(x.amount) as amount from unnest(p_accounts, p_amounts) x(account, amount) group by x.account) u
  where c.name = u.account;
  insert into redrive.entry (posting, account, amount) select p_key, u.a, u.n from unnest(p_accounts, p_amounts) u(a, n);
end $$;

-- A key that was posted before must have named the same movement: else money that somebody counts on would never move.
create or replace function redrive.check_repeated(p_key text, p_accounts text[], p_amounts bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if exists (
    select 1 from (
      select e.account, e.amount from redrive.entry e where e.posting = p_key
      union all select u.a, -u.n from unnest(p_accounts, p_amounts) u(a, n)
    ) x group by x.account having sum(x.amount) <> 0)
  then
    raise exception 'the key % was posted before, with other entries', quote_literal(p_key) using
      errcode = 'invalid_parameter_value', hint = 'a key names one movement of money, once';
  end if;
end $$;
