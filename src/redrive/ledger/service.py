"""The ledger for people: what each role may do, checked here for every face."""

from __future__ import annotations

from collections.abc import Callable

from redrive.feature import Applied, Audit, Commit, Conflict, InvalidInput, Role, Rows, new_id
from redrive.ledger import movements
from redrive.ledger.accounts import Account, AccountExists, Freeze, check_account, freeze_of
from redrive.ledger.movements import Movement
from redrive.ledger.reads import LedgerReads

MOST_LABEL = 200


class NotFrozen(Conflict):
    """Less than this is frozen under the reference."""

    code = "LEDGER_NOT_FROZEN"


class Ledger(LedgerReads):
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

    async def credit(self, name: str, amount: int, reason: str, key: str | None = None) -> Account:
        """Bring money to an account. Asked again with the same ``key``, it comes once."""
        who = self._session.may(Role.OPERATOR)
        moved = movements.credit(name, amount, key or str(new_id()), reason=check_reason(reason))
        return await self._move(who, "LEDGER_CREDITED", name, moved, reason, {"amount": amount})

    async def adjust(self, name: str, change: int, reason: str, key: str | None = None) -> Account:
        """Put an account right by more or less; not below zero, and once by ``key``."""
        who = self._session.may(Role.ADMIN)
        moved = movements.adjust(name, change, key or str(new_id()), reason=check_reason(reason))
        return await self._move(who, "LEDGER_ADJUSTED", name, moved, reason, {"change": change})

    async def freeze(self, name: str, amount: int, reference: str, reason: str, key: str | None = None) -> Account:
        """Freeze money of an account for some work."""
        who = self._session.may(Role.ADMIN)
        moved = movements.freeze(name, amount, reference, key or str(new_id()), reason=check_reason(reason))
        return await self._move(who, "LEDGER_FROZEN", name, moved, reason, {"amount": amount, "reference": reference})

    async def release(
        self, name: str, reference: str, reason: str, amount: int | None = None, key: str | None = None
    ) -> Account:
        """Give back what is frozen for some work, or a part of it."""
        return await self._settle("LEDGER_RELEASED", name, reference, reason, amount, key, captures=False)

    async def capture(
        self, name: str, reference: str, reason: str, amount: int | None = None, key: str | None = None
    ) -> Account:
        """Take what is frozen for some work as earned, or a part of it."""
        return await self._settle("LEDGER_CAPTURED", name, reference, reason, amount, key, captures=True)

    async def _settle(
        self,
        action: str,
        name: str,
        reference: str,
        reason: str,
        amount: int | None,
        key: str | None,
        *,
        captures: bool,
    ) -> Account:
        who = self._session.may(Role.ADMIN)
        await self.show(name)
        if amount is None:
            amount = (await self._freeze(name, reference)).amount
        captured, released = (amount, 0) if captures else (0, amount)
        key, reason = key or str(new_id()), check_reason(reason)
        moved = movements.settle(name, reference, key, captured=captured, released=released, reason=reason)
        try:
            return await self._move(who, action, name, moved, reason, {"amount": amount, "reference": reference})
        except InvalidInput as error:  # the books refuse it, and name a side of the account
            found = await self._freeze(name, reference)
            if found.amount >= amount:
                raise
            raise NotFrozen(f"{found.amount} of {name} are frozen for {reference}, not {amount}") from error

    async def _freeze(self, name: str, reference: str) -> Freeze:
        rows = await self._store.feature_rows("ledger", "freeze", name, movements.check_reference(reference))
        if not rows:
            raise NotFrozen(
                f"nothing of {name} is frozen for {reference!r}", hint=f"redrive ledger show {name} says what is"
            )
        return freeze_of(rows[0])

    async def _move(
        self, who: str, action: str, name: str, moved: Movement, reason: str, after: dict[str, object]
    ) -> Account:
        await self.show(name)
        said = Audit(who, action, reason, target=f"account:{name}", scope=name, after=after)
        await self._store.apply(Commit(postings=moved.postings, rows=moved.rows, conclusion=once(moved, said)))
        return await self.show(name)


def once(moved: Movement, said: Audit) -> Callable[[Applied], list[Audit]]:
    """Returns what writes the audit row unless the movement was there before."""

    def conclude(done: Applied) -> list[Audit]:
        return [] if moved.postings[0].key in done.repeated else [said]

    return conclude


def check_label(label: str | None) -> str | None:
    """Refuses a label that would not stand in one line."""
    if label is not None and (not 0 < len(label) <= MOST_LABEL or not label.isprintable()):
        raise InvalidInput(f"a label is text of 1-{MOST_LABEL} characters in one line")
    return label


def check_reason(reason: str) -> str:
    """Refuses a movement that nobody could explain later."""
    if not reason or not reason.strip():
        raise InvalidInput("say why: a reason is in the books and in the audit log", hint="--reason 'invoice 4711'")
    return reason
