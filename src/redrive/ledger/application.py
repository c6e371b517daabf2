"""``app.ledger``: what the application itself does with money; nobody's role is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from redrive.errors import Overdrawn, StoreError
from redrive.feature import App, Audit, Commit, Rows
from redrive.ledger import movements, statement
from redrive.ledger.accounts import check_account, unknown
from redrive.ledger.movements import Movement
from redrive.ledger.reversals import check_reversible, find_movement
from redrive.ledger.service import check_label, check_reason, not_frozen, once, refused_within
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.views import Account, account_of

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
        moved = movements.credit(account, amount, key, reason=check_reason(reason))
        await self._move("LEDGER_CREDITED", account, moved, reason, connection)

    async def adjust(self, account: str, change: int, key: str, *, reason: str, connection: Any = None) -> None:
        """Put an account right, by more or less, once by ``key``."""
        moved = movements.adjust(account, change, key, reason=check_reason(reason))
        await self._move("LEDGER_ADJUSTED", account, moved, reason, connection)

    async def reverse(self, movement: str, *, reason: str, connection: Any = None) -> None:
        """Undo a credit or an adjustment that is in the books, by its name there (``credit:KEY``), once."""
        made = await find_movement(await self._app.store(), movement)
        check_reversible(made)
        moved = movements.reverse(made.account, made.name, made.entries, reason=check_reason(reason))
        await self._move("LEDGER_REVERSED", made.account, moved, reason, connection)

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
        rows = await (await self._app.store()).sql.feature_rows("ledger", "account", check_account(account))
        if not rows:
            raise unknown(account)
        return account_of(rows[0], self._app.settings.of(LedgerSettings).unit)

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
        said = None if action is None else Audit(APP, action, reason, target=f"account:{account}", scope=account)
        if connection is None:
            await self._move_apart(account, moved, said)
            return
        commit = Commit(postings=moved.postings, rows=(*moved.rows, movements.must_be_open(account)))
        try:
            done = await self._app.apply(commit, connection=connection)
        except Exception as error:  # of whichever driver
            if found := refused_within(error, account, moved):
                raise found from error
            raise
        if said is not None:  # nothing is computed there from what has landed: the row follows in a second call
            await self._app.apply(Commit(audits=once(moved, said)(done)), connection=connection)

    async def _move_apart(self, account: str, moved: Movement, said: Audit | None) -> None:
        """Applies it with its audit row, unless it was there before: what is asked again has been done once."""
        await self.show(account)
        conclusion = None if said is None else once(moved, said)
        try:
            await self._app.apply(Commit(postings=moved.postings, rows=moved.rows, conclusion=conclusion))
        except (Overdrawn, StoreError) as error:
            if found := await not_frozen(await self._app.store(), error, account, moved):
                raise found from error
            if not isinstance(error, Overdrawn):
                raise
            raise movements.explained(error, await self.show(account), moved) from error
