-- opened: accounts that are new; others stay as they are
insert into redrive.ledger_account (name, label, opened_by)
select x.name, x.label, x.who from jsonb_to_recordset($1) x(name text, label text, who text)
on conflict (name) do nothing

-- accounts: those behind a name whose name contains a text, with their money
select a.name, a.label, (extract(epoch from a.opened_at) * 1000000)::bigint as opened_at, a.opened_by,
  coalesce(c.balance, 0) as available, coalesce(f.balance, 0) as frozen
from redrive.ledger_account a
left join redrive.account c on c.name = 'account:' || a.name
left join redrive.account f on f.name = 'frozen:' || a.name
where a.name > $1 and strpos(lower(a.name), lower($2)) > 0 order by a.name limit $3

-- account: one of them
select a.name, a.label, (extract(epoch from a.opened_at) * 1000000)::bigint as opened_at, a.opened_by,
  coalesce(c.balance, 0) as available, coalesce(f.balance, 0) as frozen
from redrive.ledger_account a
left join redrive.account c on c.name = 'account:' || a.name
left join redrive.account f on f.name = 'frozen:' || a.name
where a.name = $1

-- movements: what postings were for, each once
insert into redrive.ledger_movement (posting, account, reference)
select x.posting, x.account, x.reference from jsonb_to_recordset($1) x(posting text, account text, reference text)
on conflict (posting) do nothing

-- freezes: what is frozen now for these references, by the entries; what is not there any more goes with unfrozen
insert into redrive.ledger_freeze (account, reference, amount, since, moved_at)
select m.account, m.reference, sum(e.amount), min(p.at), max(p.at)
from redrive.ledger_movement m
join redrive.entry e on e.posting = m.posting and e.account = 'frozen:' || m.account
join redrive.posting p on p.key = m.posting
where (m.reference, m.account) in (select x.reference, x.account from jsonb_to_recordset($1) x(account text, reference text))
group by m.account, m.reference
on conflict (account, reference) do update set amount = excluded.amount, moved_at = greatest(ledger_freeze.moved_at, excluded.moved_at)

-- unfrozen: freezes of which nothing is left
delete from redrive.ledger_freeze f using jsonb_to_recordset($1) x(account text, reference text)
where f.account = x.account and f.reference = x.reference and f.amount = 0

-- reference_moved: the work that money is frozen for goes on; said once a minute at most, so that nobody waits for the row
update redrive.ledger_freeze f set moved_at = clock_timestamp() from jsonb_to_recordset($1) x(reference text)
where f.reference = x.reference and f.moved_at < clock_timestamp() - interval '1 minute'

-- frozen: what an account has frozen, by what for; the longest first
select account, reference, amount, (extract(epoch from since) * 1000000)::bigint as since,
  (extract(epoch from moved_at) * 1000000)::bigint as moved_at
from redrive.ledger_freeze where account = $1 order by moved_at, reference limit $2

-- totals: all that is frozen, and what of it is for work that has not moved for so many hours
select coalesce(sum(amount), 0)::bigint as frozen,
  coalesce(sum(amount) filter (where moved_at <= clock_timestamp() - $1::double precision * interval '1 hour'), 0)::bigint as at_risk
from redrive.ledger_freeze

-- at_risk: the same one by one, the largest first
select account, reference, amount, (extract(epoch from since) * 1000000)::bigint as since,
  (extract(epoch from moved_at) * 1000000)::bigint as moved_at
from redrive.ledger_freeze where moved_at <= clock_timestamp() - $1::double precision * interval '1 hour'
order by amount desc, account, reference limit $2

-- personal: labels of a person's accounts; the books themselves stay
select count(*) as n from redrive.ledger_account where name = $1::jsonb ->> 'scope' and label is not null

-- erase: the same, emptied
update redrive.ledger_account set label = null where name = $1::jsonb ->> 'scope' and label is not null
