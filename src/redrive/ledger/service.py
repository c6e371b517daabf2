"""The ledger for people: what each role may do, checked here for every face."""

from __future__ import annotations

from collections.abc import Callable

from redrive.feature import Applied, Audit, Commit, InvalidInput, Role, Rows, Service, new_id
from redrive.ledger import movements
from redrive.ledger.accounts import Account, AccountExists, Freeze, account_of, check_account, freeze_of, unknown
from redrive.ledger.settings import LedgerSettings

MOST_LISTED = 500
MOST_LABEL = 200


class Ledger(Service):
    async def open(self, name: str, label: str | None = None) -> Account:
        """Open an account. It begins with nothing; ``label`` is what people call it."""
        who = self._session.may(Role.OPERATOR)
        check_account(name)
        if await self._find(name) is not None:
            raise AccountExists(f"account {name!r} is open already", hint=f"redrive ledger show {name}")
        row = {"name": name, "label": check_label(label), "who": who}
        said = Audit(who, "LEDGER_OPENED", target=f"account:{name}", scope=name)
        await self._store.apply(Commit(rows=[Rows("ledger", "opened", (row,))], audits=[said]))
        return await self.show(name)

    async def accounts(self, search: str = "", after: str = "", limit: int = 100) -> list[Account]:
        """Accounts by name, those behind ``after``; with ``search``, those whose names contain it."""
        self._session.may(Role.VIEWER)
        rows = await self._store.feature_rows("ledger", "accounts", after, search, max(1, min(limit, MOST_LISTED)))
        return [account_of(row) for row in rows]

    async def show(self, name: str) -> Account:
        """One account: what it can spend, and what is frozen."""
        self._session.may(Role.VIEWER)
        found = await self._find(name)
        if found is None:
            raise unknown(name)
        return found

    async def frozen(self, name: str, limit: int = 100) -> list[Freeze]:
        """What an account has frozen, and for what; what has not moved for longest comes first."""
        self._session.may(Role.VIEWER)
        rows = await self._store.feature_rows("ledger", "frozen", name, max(1, min(limit, MOST_LISTED)))
        return [freeze_of(row) for row in rows]

    async def at_risk(self, limit: int = 100) -> list[Freeze]:
        """What is frozen for work that does not move, the largest amounts first."""
        self._session.may(Role.VIEWER)
        hours = self._session.settings.of(LedgerSettings).at_risk_hours
        rows = await self._store.feature_rows("ledger", "at_risk", hours, max(1, min(limit, MOST_LISTED)))
        return [freeze_of(row) for row in rows]

    async def credit(self, name: str, amount: int, reason: str, key: str | None = None) -> Account:
        """Bring money to an account. Asked again with the same ``key``, it comes once."""
        who = self._session.may(Role.OPERATOR)
        await self.show(name)
        moved = movements.credit(name, amount, key or str(new_id()), reason=check_reason(reason))
        said = Audit(who, "LEDGER_CREDITED", reason, target=f"account:{name}", scope=name, after={"amount": amount})
        await self._store.apply(Commit(postings=moved.postings, rows=moved.rows, conclusion=once(moved, said)))
        return await self.show(name)

    async def _find(self, name: str) -> Account | None:
        rows = await self._store.feature_rows("ledger", "account", name)
        return account_of(rows[0]) if rows else None


def once(moved: movements.Movement, said: Audit) -> Callable[[Applied], list[Audit]]:
    """Returns what writes the audit row unless the movement was there before."""

    def conclude(done: Applied) -> list[Audit]:
        return [] if moved.postings[0].key in done.repeated else [said]

    return conclude


def check_label(label: str | None) -> str | None:
    if label is not None and (not 0 < len(label) <= MOST_LABEL or not label.isprintable()):
        raise InvalidInput(f"a label is text of 1-{MOST_LABEL} characters in one line")
    return label


def check_reason(reason: str) -> str:
    if not reason or not reason.strip():
        raise InvalidInput("say why: a reason is in the books and in the audit log", hint="--reason 'invoice 4711'")
    return reason
