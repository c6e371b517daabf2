"""``app.ledger``: what the application itself does with money; nobody's role is asked."""

from __future__ import annotations

from typing import Any

from redrive.feature import App, Audit, Commit, Rows
from redrive.ledger import movements
from redrive.ledger.accounts import available, check_account, frozen, unknown

APP = "app"


class AppLedger:
    def __init__(self, app: App) -> None:
        self._app = app

    async def open(self, account: str, *, label: str | None = None, connection: Any = None) -> None:
        """Open an account, unless it is open already; with ``connection``, in the caller's own transaction."""
        row = {"name": check_account(account), "label": label, "who": APP}
        await self._app.apply(Commit(rows=[Rows("ledger", "opened", (row,))]), connection=connection)

    async def credit(self, account: str, amount: int, key: str, *, reason: str, connection: Any = None) -> None:
        """Bring money to an account, once by ``key``."""
        moved = movements.credit(account, amount, key, reason=reason)
        said = Audit(APP, "LEDGER_CREDITED", reason, target=f"account:{account}", scope=account)
        await self._app.apply(Commit(postings=moved.postings, rows=moved.rows, audits=[said]), connection=connection)

    async def balance(self, account: str) -> dict[str, int]:
        """Returns what an account can spend, and what is frozen."""
        store = await self._app.store()
        if not await store.feature_rows("ledger", "account", check_account(account)):
            raise unknown(account)
        return {"available": await store.balance(available(account)), "frozen": await store.balance(frozen(account))}
