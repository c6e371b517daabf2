"""``app.ledger``: what the application itself does with money; nobody's role is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from redrive.feature import App, Audit, Commit, Rows
from redrive.ledger import movements, statement
from redrive.ledger.accounts import Account, account_of, check_account, unknown
from redrive.ledger.movements import Movement
from redrive.ledger.service import check_label

APP = "app"


class AppLedger:
    """Each method takes ``connection``: then it is part of the caller's own transaction."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def open(self, account: str, *, label: str | None = None, connection: Any = None) -> None:
        """Open an account, unless it is open already."""
        row = {"name": check_account(account), "label": check_label(label), "who": APP}
        await self._app.apply(Commit(rows=[Rows("ledger", "opened", (row,))]), connection=connection)

    async def credit(self, account: str, amount: int, key: str, *, reason: str, connection: Any = None) -> None:
        """Bring money to an account, once by ``key``."""
        moved = movements.credit(account, amount, key, reason=reason)
        await self._move("LEDGER_CREDITED", account, moved, reason, connection)

    async def adjust(self, account: str, change: int, key: str, *, reason: str, connection: Any = None) -> None:
        """Put an account right, by more or less, once by ``key``."""
        moved = movements.adjust(account, change, key, reason=reason)
        await self._move("LEDGER_ADJUSTED", account, moved, reason, connection)

    async def freeze(self, account: str, amount: int, reference: str, key: str, *, connection: Any = None) -> None:
        """Freeze money for some work, once by ``key``; refused where there is too little."""
        await self._move(None, account, movements.freeze(account, amount, reference, key), None, connection)

    async def settle(
        self,
        account: str,
        reference: str,
        key: str,
        *,
        captured: int = 0,
        released: int = 0,
        connection: Any = None,
    ) -> None:
        """End a freeze, or a part of it, once by ``key``: what was earned is captured, the rest goes back."""
        moved = movements.settle(account, reference, key, captured=captured, released=released)
        await self._move(None, account, moved, None, connection)

    async def moved(self, *references: str, connection: Any = None) -> None:
        """Say that work goes on for which money is frozen: then it is not at risk."""
        await self._app.apply(Commit(rows=[movements.moved(*references)]), connection=connection)

    async def show(self, account: str) -> Account:
        """One account: what it can spend, and what is frozen."""
        rows = await (await self._app.store()).feature_rows("ledger", "account", check_account(account))
        if not rows:
            raise unknown(account)
        return account_of(rows[0])

    async def balance(self, account: str, at: datetime | None = None) -> dict[str, int]:
        """Returns what an account can spend and what is frozen; now, or at a time."""
        found: Any = await self.show(account)
        if at is not None:
            found = await statement.place_at(await self._app.store(), account, at)
        return {"available": found.available, "frozen": found.frozen}

    async def _move(
        self, action: str | None, account: str, moved: Movement, reason: str | None, connection: Any
    ) -> None:
        """Applies a movement. Freezes and settlements are no operator's doing, and stand in the books alone."""
        await self.show(account)
        said = [] if action is None else [Audit(APP, action, reason, target=f"account:{account}", scope=account)]
        commit = Commit(postings=moved.postings, rows=moved.rows, audits=said)
        await self._app.apply(commit, connection=connection)
