-- opened: accounts that are new; others stay as they are
insert into redrive_ledger_account (name, label, opened_by)
select j.value ->> 'name', j.value ->> 'label', j.value ->> 'who' from json_each(?) j where true
on conflict (name) do nothing

-- accounts: those behind a name whose name contains a text, with their money
select a.name, a.label, a.opened_at, a.opened_by,
  coalesce(c.balance, 0) as available, coalesce(f.balance, 0) as frozen
from redrive_ledger_account a
left join redrive_account c on c.name = 'account:' || a.name
left join redrive_account f on f.name = 'frozen:' || a.name
where a.name > ?1 and instr(lower(a.name), lower(?2)) > 0 order by a.name limit ?3

-- account: one of them
select a.name, a.label, a.opened_at, a.opened_by,
  coalesce(c.balance, 0) as available, coalesce(f.balance, 0) as frozen
from redrive_ledger_account a
left join redrive_account c on c.name = 'account:' || a.name
left join redrive_account f on f.name = 'frozen:' || a.name
where a.name = ?

-- movements: what postings were for, each once
insert into redrive_ledger_movement (posting, account, reference)
select j.value ->> 'posting', j.value ->> 'account', j.value ->> 'reference' from json_each(?) j where true
on conflict (posting) do nothing

-- freezes: what is frozen now for these references, by the entries; what is not there any more goes with unfrozen
insert into redrive_ledger_freeze (account, reference, amount, since, moved_at)
select m.account, m.reference, sum(e.amount), min(p.at), max(p.at)
from redrive_ledger_movement m
join redrive_entry e on e.posting = m.posting and e.account = 'frozen:' || m.account
join redrive_posting p on p.key = m.posting
where (m.reference, m.account) in (select j.value ->> 'reference', j.value ->> 'account' from json_each(?) j)
group by m.account, m.reference
on conflict (account, reference) do update set amount = excluded.amount, moved_at = max(moved_at, excluded.moved_at)

-- unfrozen: freezes of which nothing is left
delete from redrive_ledger_freeze where amount = 0
  and (account, reference) in (select j.value ->> 'account', j.value ->> 'reference' from json_each(?) j)

-- reference_moved: the work that money is frozen for goes on; said once a minute at most
update redrive_ledger_freeze set moved_at = unixepoch() * 1000000
where reference in (select j.value ->> 'reference' from json_each(?) j) and moved_at < (unixepoch() - 60) * 1000000

-- frozen: what an account has frozen, by what for; the longest first
select account, reference, amount, since, moved_at
from redrive_ledger_freeze where account = ?1 order by moved_at, reference limit ?2

-- totals: all that is frozen, and what of it is for work that has not moved for so many hours
select coalesce(sum(amount), 0) as frozen,
  coalesce(sum(amount) filter (where moved_at <= (unixepoch() - ? * 3600) * 1000000), 0) as at_risk
from redrive_ledger_freeze

-- at_risk: the same one by one, the largest first
select account, reference, amount, since, moved_at
from redrive_ledger_freeze where moved_at <= (unixepoch() - ?1 * 3600) * 1000000
order by amount desc, account, reference limit ?2

-- personal: labels of a person's accounts; the books themselves stay
select count(*) as n from redrive_ledger_account where name = ?1 ->> 'scope' and label is not null

-- erase: the same, emptied
update redrive_ledger_account set label = null where name = ?1 ->> 'scope' and label is not null
