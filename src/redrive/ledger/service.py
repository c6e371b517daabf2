"""The ledger for people: accounts, statements and the proof, and what moves money. What each role may do is checked
here, for every face; what the database refuses is said in words about an account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redrive.errors import ApprovalNeeded, Overdrawn, StoreError
from redrive.feature import (
    Applied,
    Asked,
    Audit,
    Commit,
    Conflict,
    InvalidInput,
    Land,
    PlannedAction,
    RedriveError,
    Request,
    Role,
    Rows,
    Service,
    Store,
    new_id,
)
from redrive.features import hooks_of
from redrive.integrations.own_commit import causes
from redrive.kernel.records import Put, Record
from redrive.ledger import movements, statement, verify
from redrive.ledger.accounts import (
    Account,
    AccountExists,
    Freeze,
    NotFrozen,
    TooLittle,
    account_of,
    available,
    check_account,
    freeze_of,
    frozen,
    unknown,
)
from redrive.ledger.doctor import totals
from redrive.ledger.movements import Movement, check_reference
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.statement import Line
from redrive.ledger.verify import HOOK
from redrive.ops.filters import parse_moment, parse_span

_NEVER_NEGATIVE = "ledger_freeze_never_negative"  # the constraint of a freeze
_OPENED_BY = "opened_by"  # what the statement must_be_open leaves out
MOST_LISTED = 500
MOST_LABEL = 200
WINDOW = timedelta(hours=24)  # over which what one person brings and moves is added up


async def find_freeze(store: Store, account: str, reference: str) -> Freeze | None:
    """Returns what is frozen for some work."""
    rows = await store.sql.feature_rows("ledger", "freeze", account, reference)
    return freeze_of(rows[0]) if rows else None


def nothing_frozen(account: str, reference: str) -> NotFrozen:
    return NotFrozen(
        f"nothing of {account} is frozen for {reference!r}", hint=f"redrive ledger show {account} says what is"
    )


async def not_frozen(store: Store, error: Exception, account: str, moved: Movement) -> NotFrozen | None:
    """Returns the refusal of a settlement by how much is frozen now; None where that is not why."""
    wanted = moved.taken(frozen(account))
    if wanted <= 0 or not (isinstance(error, Overdrawn) or _says(error, _NEVER_NEGATIVE)):
        return None
    reference = str(moved.rows[0].values[0]["reference"])
    found = await find_freeze(store, account, reference)
    if found is None:
        return nothing_frozen(account, reference)
    if found.amount >= wanted:
        return None
    return NotFrozen(f"{found.amount} of {account} are frozen for {reference}, not {wanted}")


def refused_within(error: Exception, account: str, moved: Movement) -> RedriveError | None:
    """Returns the refusal of a movement in the caller's own transaction, where nothing can be looked up: others do not
    see what is in it. None where it has other reasons."""
    if _says(error, _OPENED_BY):
        return unknown(account)
    if not isinstance(error, Overdrawn) and not _says(error, _NEVER_NEGATIVE):
        return None
    if (wanted := moved.taken(frozen(account))) > 0:
        return NotFrozen(f"less than {wanted} of {account} are frozen for this; nothing was moved")
    needed = moved.taken(available(account))
    return TooLittle(f"account {account} has less to spend than the {needed} that this needs; nothing was moved")


def _says(error: Exception, what: str) -> bool:
    return any(what in str(cause) for cause in causes(error))


def at_most(limit: int) -> int:
    return max(1, min(limit, MOST_LISTED))


class FreezeHeld(Conflict):
    """What this money is frozen for settles it itself."""

    code = "LEDGER_FREEZE_HELD"


@dataclass(slots=True, frozen=True)
class Adjusted:
    """An account as it is now, and the approval that its change waits for, where a second person has to agree."""

    account: Account
    approval: Record | None = None


class Ledger(Service):
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

    async def credit(self, name: str, amount: int, reason: str, key: str | None = None) -> Adjusted:
        """Bring money to an account. Asked again with the same ``key``, it comes once. Much of it, by
        ``LEDGER_APPROVALS_ABOVE``, waits for a second person."""
        who, key = self._session.may(Role.OPERATOR), key or str(new_id())
        moved = movements.credit(name, amount, key, reason=check_reason(reason))
        return await self._alone(
            name,
            moved,
            amount,
            lambda land: self._move(who, "LEDGER_CREDITED", name, moved, reason, {"amount": amount}, land),
            _request("credit", name, amount, key, self.unit),
        )

    async def carry_out_credit(self, asked: Asked, land: Land) -> None:
        """Does a credit that somebody else asked for, and that the caller agrees to."""
        self._session.may(Role.OPERATOR)
        name, amount, key = (asked.arguments[part] for part in ("account", "change", "key"))
        reason = asked.reason or ""
        moved = movements.credit(name, amount, key, reason=reason)
        await self._move(asked.by, "LEDGER_CREDITED", name, moved, reason, {"amount": amount}, land)

    async def adjust(self, name: str, change: int, reason: str, key: str | None = None) -> Adjusted:
        """Put an account right by more or less; not below zero, and once by ``key``. Much of it, by
        ``LEDGER_APPROVALS_ABOVE``, waits for a second person."""
        who, key = self._session.may(Role.ADMIN), key or str(new_id())
        moved = movements.adjust(name, change, key, reason=check_reason(reason))
        return await self._alone(
            name,
            moved,
            change,
            lambda land: self._adjust(who, name, change, reason, key, land),
            _request("adjust", name, change, key, self.unit),
        )

    async def carry_out_adjust(self, asked: Asked, land: Land) -> None:
        """Does an adjustment that somebody else asked for, and that the caller agrees to."""
        self._session.may(Role.ADMIN)
        name, change, key = (asked.arguments[part] for part in ("account", "change", "key"))
        await self._adjust(asked.by, name, change, asked.reason or "", key, land)

    async def _adjust(self, who: str, name: str, change: int, reason: str, key: str, land: Land) -> Account:
        moved = movements.adjust(name, change, key, reason=reason)
        return await self._move(who, "LEDGER_ADJUSTED", name, moved, reason, {"change": change}, land)

    async def _alone(
        self, name: str, moved: Movement, change: int, act: Callable[[Land], Awaitable[Account]], asked: Request
    ) -> Adjusted:
        """Does what one person may do alone, and counts it; what is more, together with what they did within a day, is
        asked for. What is in the books already is neither counted nor asked for again."""
        account = await self.show(name)

        async def counted(puts: Sequence[Put]) -> Account:
            return await act(lambda commit: self._store.apply(replace(commit, puts=[*commit.puts, *puts])))

        if await self._store.sql.feature_rows("ledger", "movement", moved.postings[0].key):
            return Adjusted(await counted(()))
        try:
            rule = self._session.amounts(self._own.approvals_above, WINDOW, "ledger", self.unit)
            return Adjusted(await self._session.alone(PlannedAction(None, abs(change)), counted, rule))
        except ApprovalNeeded as needed:
            reason = moved.postings[0].note
            return Adjusted(account, await self._session.ask(asked, reason, needed.why))

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
        await self._not_held(reference)
        captured, released = (amount, 0) if captures else (0, amount)
        key, reason = key or str(new_id()), check_reason(reason)
        moved = movements.settle(name, reference, key, captured=captured, released=released, reason=reason)
        moved = replace(moved, rows=(*moved.rows, *self._unheld(reference)))
        try:
            return await self._move(who, action, name, moved, reason, {"amount": amount, "reference": reference})
        except (Overdrawn, StoreError) as error:  # the books refuse it, and name a side of the account, or the freeze
            await self._not_held(reference)  # perhaps by now
            found = await not_frozen(self._store, error, name, moved)
            if found is None:
                raise
            raise found from error

    async def _not_held(self, reference: str) -> None:
        """Refuses to settle what a feature will settle itself: it would find less than it has frozen."""
        for _, hook in hooks_of(self._session.features, HOOK):
            held = await hook.holds(self._store, movements.check_reference(reference))
            if held is not None:
                raise FreezeHeld(held.why, hint=held.hint)

    def _unheld(self, reference: str) -> list[Rows]:
        """Returns the rows by which features refuse the same in the transaction itself."""
        asked = [hook.refuse(reference) for _, hook in hooks_of(self._session.features, HOOK)]
        return [rows for rows in asked if rows is not None]

    async def _freeze(self, name: str, reference: str) -> Freeze:
        found = await find_freeze(self._store, name, movements.check_reference(reference))
        if found is None:
            raise nothing_frozen(name, reference)
        return found

    async def _move(
        self,
        who: str,
        action: str,
        name: str,
        moved: Movement,
        reason: str,
        after: dict[str, object],
        land: Land | None = None,
    ) -> Account:
        await self.show(name)
        said = Audit(who, action, reason, target=f"account:{name}", scope=name, after=after)
        try:
            commit = Commit(postings=moved.postings, rows=moved.rows, conclusion=once(moved, said))
            await (land or self._store.apply)(commit)
        except Overdrawn as error:
            raise movements.explained(error, await self.show(name), moved) from error
        return await self.show(name)


def _request(action: str, name: str, change: int, key: str, unit: str) -> Request:
    """Returns a credit or an adjustment as it is asked for."""
    told = f"account {name} gets {change:,} {unit}" if change > 0 else f"account {name} loses {-change:,} {unit}"
    return Request(
        "ledger",
        action,
        {"account": name, "change": change, "key": key},
        abs(change),
        f"{action} {name} by {change:+,} {unit}",
        f"{told}, in the books for good: what was wrong is put right by another adjustment",
        f"/ledger/{name}",
        name,
    )


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
