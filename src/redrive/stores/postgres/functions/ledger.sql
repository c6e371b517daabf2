-- One movement of money. False when the key was posted before. The caller's entries add up to zero; so does the table.
create or replace function redrive.post(p_key text, p_accounts text[], p_amounts bigint[], p_note text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if (select sum(a) from unnest(p_amounts) a) is distinct from 0 then
    raise exception 'posting % does not add up to zero', quote_literal(p_key) using errcode = 'check_violation';
  end if;
  insert into redrive.posting (key, at, note) values (p_key, clock_timestamp(), p_note) on conflict do nothing;
  if not found then
    if exists (
      select 1 from (
        select e.account, e.amount from redrive.entry e where e.posting = p_key
        union all select u.a, -u.n from unnest(p_accounts, p_amounts) u(a, n)) x
      group by x.account having sum(x.amount) <> 0
    ) then
      raise exception 'the key % was posted before, with other entries', quote_literal(p_key) using
        errcode = 'invalid_parameter_value', hint = 'a key names one movement of money, once';
    end if;
    return false;
  end if;
  insert into redrive.account (name) select distinct a from unnest(p_accounts) a order by a on conflict do nothing;
  -- In the order of their names: two postings over the same accounts cannot deadlock.
  perform 1 from redrive.account c where c.name = any (p_accounts) order by c.name for update;
  update redrive.account c set balance = c.balance + u.amount
  from (select x.account, sum(x.amount) as amount from unnest(p_accounts, p_amounts) x(account, amount) group by x.account) u
  where c.name = u.account;
  insert into redrive.entry (posting, account, amount) select p_key, u.a, u.n from unnest(p_accounts, p_amounts) u(a, n);
  return true;
end $$;
