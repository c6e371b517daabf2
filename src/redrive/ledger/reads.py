"""What the ledger shows to people: accounts, what is frozen, statements, and the proof."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

from redrive.feature import Role, Service
from redrive.ledger import statement, verify
from redrive.ledger.accounts import Account, Freeze, account_of, freeze_of, unknown
from redrive.ledger.at_risk import totals
from redrive.ledger.movements import check_reference
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.statement import Line
from redrive.ops.filters import parse_moment, parse_span

MOST_LISTED = 500


def at_most(limit: int) -> int:
    return max(1, min(limit, MOST_LISTED))


class LedgerReads(Service):
    async def accounts(self, search: str = "", after: str = "", limit: int = 100) -> list[Account]:
        """Accounts by name, those behind ``after``; with ``search``, those whose names contain it."""
        self._session.may(Role.VIEWER)
        rows = await self._store.sql.feature_rows("ledger", "accounts", after, search, at_most(limit))
        return [self._seen(account_of(row)) for row in rows]

    async def show(self, name: str) -> Account:
        """One account: what it can spend, and what is frozen."""
        self._session.may(Role.VIEWER)
        found = await self._find(name)
        if found is None:
            raise unknown(name)
        return found

    async def show_at(self, name: str, at: str) -> tuple[datetime, statement.Place]:
        """What an account could spend at a time (``2h`` ago, or exactly), and what was frozen; with that time."""
        await self.show(name)
        when = parse_moment(at, "the time", await self._store.now())
        return when, await statement.place_at(self._store, name, when)

    async def statement(
        self, name: str, before: str | None = None, limit: int = 50, reference: str | None = None
    ) -> statement.Statement:
        """The movements of an account, the latest first; ``before`` is ``next`` of the page before. With ``reference``
        those for one thing, the latest of them."""
        await self.show(name)
        if reference is not None:
            found = await statement.of_reference(self._store, name, check_reference(reference), at_most(limit))
        else:
            place = None if before is None else statement.parse_place(before)
            found = await statement.page(self._store, name, place, at_most(limit))
        return replace(found, lines=[self._line_seen(line) for line in found.lines])

    async def export(self, name: str, since: str | None = None, until: str | None = None) -> AsyncIterator[str]:
        """Returns the lines of a CSV of all movements, the oldest first. Refuses at once, before the first line."""
        await self.show(name)
        return statement.export(self._store, name, *parse_span(since, until), self._line_seen)

    async def frozen(self, name: str, limit: int = 100) -> list[Freeze]:
        """What an account has frozen, and for what; what has not moved for longest comes first."""
        self._session.may(Role.VIEWER)
        rows = await self._store.sql.feature_rows("ledger", "frozen", name, at_most(limit))
        return [freeze_of(row) for row in rows]

    async def at_risk(self, limit: int = 100) -> list[Freeze]:
        """What is frozen for work that does not move, the largest amounts first."""
        self._session.may(Role.VIEWER)
        hours = self._own.at_risk_hours
        rows = await self._store.sql.feature_rows("ledger", "at_risk", hours, at_most(limit))
        return [freeze_of(row) for row in rows]

    @property
    def unit(self) -> str:
        """What people call what is counted."""
        return self._own.unit

    @property
    def _own(self) -> LedgerSettings:
        return self._session.settings.of(LedgerSettings)

    async def totals(self) -> dict[str, int]:
        """How much is frozen, and how much of it is at risk."""
        self._session.may(Role.VIEWER)
        return await totals(self._store, self._session.settings)

    async def verify(self) -> verify.Verdict:
        """Prove that the books are right; what is wrong is named."""
        self._session.may(Role.OPERATOR)
        return await verify.verify(self._store, self._session.features)

    async def _find(self, name: str) -> Account | None:
        rows = await self._store.sql.feature_rows("ledger", "account", name)
        return self._seen(account_of(rows[0])) if rows else None

    def _line_seen(self, line: Line) -> Line:
        """Returns a movement as the caller may see it."""
        return line if self._session.caller.role >= Role.OPERATOR else statement.without_words(line)

    def _seen(self, account: Account) -> Account:
        """Returns it as the caller may see it: a label is free text, and often somebody's name."""
        return account if self._session.caller.role >= Role.OPERATOR else replace(account, label=None)
