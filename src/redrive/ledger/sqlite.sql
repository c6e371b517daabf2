-- opened: accounts that are new; others stay as they are
insert into redrive_ledger_account (name, label, opened_by)
select j.value ->> 'name', j.value ->> 'label', j.value ->> 'who' from json_each(?) j where true
on conflict (name) do nothing

-- must_be_open: refused (opened_by is null) where an account is not there
insert into redrive_ledger_account (name, opened_by)
select j.value ->> 'name', null from json_each(?) j
where not exists (select 1 from redrive_ledger_account a where a.name = j.value ->> 'name')

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

-- reference_moved_at: the same, where it is known when
update redrive_ledger_freeze set moved_at = x.at
from (select j.value ->> 'reference' as reference, j.value ->> 'at' as at from json_each(?) j) x
where redrive_ledger_freeze.reference = x.reference and redrive_ledger_freeze.moved_at < x.at

-- still: references that begin with ?2, come behind ?3 and have not moved for so many hours (?1), so many (?4)
select reference, max(moved_at) as moved_at from redrive_ledger_freeze
where moved_at <= (unixepoch() - ?1 * 3600) * 1000000 and substr(reference, 1, length(?2)) = ?2 and reference > ?3
group by reference order by reference limit ?4

-- frozen: what an account has frozen, by what for; the longest first
select account, reference, amount, since, moved_at
from redrive_ledger_freeze where account = ?1 order by moved_at, reference limit ?2

-- freeze: what an account has frozen for one reference
select account, reference, amount, since, moved_at
from redrive_ledger_freeze where account = ?1 and reference = ?2

-- totals: all that is frozen, and what of it is for work that has not moved for so many hours
select coalesce(sum(amount), 0) as frozen,
  coalesce(sum(amount) filter (where moved_at <= (unixepoch() - ? * 3600) * 1000000), 0) as at_risk
from redrive_ledger_freeze

-- at_risk: the same one by one, the largest first
select account, reference, amount, since, moved_at
from redrive_ledger_freeze where moved_at <= (unixepoch() - ?1 * 3600) * 1000000
order by amount desc, account, reference limit ?2

-- entries: of both sides of an account, before a place, the latest first; and what the sides have now
select e.id, e.side, e.amount, e.posting, p.note, p.at as at, m.reference,
  coalesce((select balance from redrive_account where name = 'account:' || ?1), 0) as available,
  coalesce((select balance from redrive_account where name = 'frozen:' || ?1), 0) as frozen
from (
  select * from (select id, 'available' as side, amount, posting from redrive_entry
   where account = 'account:' || ?1 and id < ?2 order by id desc limit ?3)
  union all
  select * from (select id, 'frozen', amount, posting from redrive_entry where account = 'frozen:' || ?1 and id < ?2 order by id desc limit ?3)
) e
join redrive_posting p on p.key = e.posting left join redrive_ledger_movement m on m.posting = e.posting
order by e.id desc limit ?3

-- entries_after: the same behind a place, the oldest first
select e.id, e.side, e.amount, e.posting, p.note, p.at as at, m.reference,
  0 as available, 0 as frozen
from (
  select * from (select id, 'available' as side, amount, posting from redrive_entry
   where account = 'account:' || ?1 and id > ?2 order by id limit ?3)
  union all
  select * from (select id, 'frozen', amount, posting from redrive_entry where account = 'frozen:' || ?1 and id > ?2 order by id limit ?3)
) e
join redrive_posting p on p.key = e.posting left join redrive_ledger_movement m on m.posting = e.posting
order by e.id limit ?3

-- entries_for: of both sides of an account, only for what is called so (?2), the latest first
select e.id, case e.account when 'account:' || ?1 then 'available' else 'frozen' end as side, e.amount, e.posting, p.note, p.at as at, m.reference
from redrive_ledger_movement m join redrive_posting p on p.key = m.posting
join redrive_entry e on e.posting = m.posting and e.account in ('account:' || ?1, 'frozen:' || ?1)
where m.reference = ?2 and m.account = ?1 order by e.id desc limit ?3

-- movement: the entries of one movement, when it was made, and what for
select e.account, e.amount, p.at as at, m.reference
from redrive_posting p join redrive_entry e on e.posting = p.key left join redrive_ledger_movement m on m.posting = p.key
where p.key = ?1 order by e.id

-- balance_at: what both sides had at a time, and the place of the last entry until then. By places, as statements are
with last as (
  select coalesce(max(id), 0) as place from (
    select * from (select e.id from redrive_entry e join redrive_posting p on p.key = e.posting
     where e.account = 'account:' || ?1 and p.at <= ?2
     order by e.id desc limit 1)
    union all
    select * from (select e.id from redrive_entry e join redrive_posting p on p.key = e.posting
     where e.account = 'frozen:' || ?1 and p.at <= ?2
     order by e.id desc limit 1)
  ) x
)
select l.place,
  (select coalesce(sum(e.amount), 0) from redrive_entry e where e.account = 'account:' || ?1 and e.id <= l.place) as available,
  (select coalesce(sum(e.amount), 0) from redrive_entry e where e.account = 'frozen:' || ?1 and e.id <= l.place) as frozen
from last l

-- postings_piece: the last of so many postings behind a key
select max(x.key) as last, count(*) as n from (select key from redrive_posting where key > ?1 order by key limit ?2) x

-- wrong_postings: those of a piece whose entries do not add up to zero, or that have none
select p.key as name, coalesce(sum(e.amount), 0) as total, count(e.id) as n
from redrive_posting p left join redrive_entry e on e.posting = p.key
where p.key > ?1 and p.key <= ?2 group by p.key having coalesce(sum(e.amount), 0) <> 0 or count(e.id) = 0 order by p.key limit ?3

-- postings_without_cause: those of a piece of which nothing says why: neither a reason, nor what it was for; and reversals of what is not in the books
select p.key as name, m.reference from redrive_posting p left join redrive_ledger_movement m on m.posting = p.key
where p.key > ?1 and p.key <= ?2 and (
  (m.posting is null and (p.note is null or p.note = '' or p.key like 'freeze:%' or p.key like 'settle:%' or p.key like 'reverse:%'))
  or (p.key like 'reverse:%' and not exists (select 1 from redrive_posting o where o.key = m.reference)))
order by p.key limit ?3

-- accounts_piece: the last of so many accounts of the books behind a name
select max(x.name) as last, count(*) as n from (select name from redrive_account where name > ?1 order by name limit ?2) x

-- wrong_accounts: those of a piece that have other money than their entries say, or less than none
select x.name, x.balance, x.total as total from (
  select a.name, a.balance, coalesce((select sum(e.amount) from redrive_entry e where e.account = a.name), 0) as total
  from redrive_account a where a.name > ?1 and a.name <= ?2
) x
where x.balance <> x.total or (x.balance < 0 and x.name not glob 'system:*') order by x.name limit ?3

-- wrong_freezes: frozen sides of a piece whose money is not that of what it is frozen for
select x.name, x.balance, x.total as total from (
  select a.name, a.balance,
    coalesce((select sum(f.amount) from redrive_ledger_freeze f where f.account = substr(a.name, 8)), 0) as total
  from redrive_account a where a.name > ?1 and a.name <= ?2 and a.name glob 'frozen:*'
) x
where x.balance <> x.total order by x.name limit ?3

-- wrong_references: what frozen sides of a piece have frozen for something, and not by the entries of its movements; or less than none
select x.name, x.reference, x.total as total, coalesce(f.amount, 0) as amount from (
  select a.name, m.account, m.reference, sum(e.amount) as total from redrive_account a
  cross join redrive_entry e on e.account = a.name cross join redrive_ledger_movement m on m.posting = e.posting
  where a.name > ?1 and a.name <= ?2 and a.name like 'frozen:%' group by a.name, m.account, m.reference
) x left join redrive_ledger_freeze f on f.account = substr(x.name, 8) and f.reference = x.reference
where x.total <> coalesce(f.amount, 0) or x.total < 0 or x.account <> substr(x.name, 8) order by x.name, x.reference limit ?3

-- personal: labels of a person's accounts; the books themselves stay
select count(*) as n from redrive_ledger_account where name = ?1 ->> 'scope' and label is not null

-- erase: the same, emptied
update redrive_ledger_account set label = null where name = ?1 ->> 'scope' and label is not null
