"""The ledger for people: accounts, statements and the proof, and what moves money. What each role may do is checked
here, for every face; what the database refuses is said in words about an account."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from redrive.errors import ApprovalNeeded, Overdrawn, StoreError
from redrive.feature import (
    Applied,
    Asked,
    Audit,
    Commit,
    Conflict,
    Given,
    InvalidInput,
    Land,
    Limit,
    PlannedAction,
    RedriveError,
    Request,
    Role,
    Rows,
    Service,
    Store,
    action,
    look,
    new_id,
    view_of,
)
from redrive.features import hooks_of
from redrive.integrations.own_commit import causes
from redrive.kernel.records import Put
from redrive.ledger import movements, statement, verify
from redrive.ledger.accounts import AccountExists, NotFrozen, TooLittle, available, check_account, frozen, unknown
from redrive.ledger.doctor import totals
from redrive.ledger.movements import Movement, MovementKind, check_reference
from redrive.ledger.reversals import (
    Made,
    already_reversed,
    check_reversible,
    find_movement,
    reversal_request,
    spent,
)
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.statement import Line
from redrive.ledger.verify import HOOK, Verdict
from redrive.ledger.views import (
    Account,
    AccountDetail,
    Adjusted,
    Freeze,
    MoneyPage,
    RiskPage,
    account_of,
    freeze_of,
)
from redrive.ops.filters import parse_moment, parse_span
from redrive.ops.operator.declared import declared_by

_NEVER_NEGATIVE = "ledger_freeze_never_negative"  # the constraint of a freeze
_OPENED_BY = "opened_by"  # what the statement must_be_open leaves out
MOST_LABEL = 200
CHANGES = {"credit": movements.credit, "adjust": movements.adjust}
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


class FreezeHeld(Conflict):
    """What this money is frozen for settles it itself."""

    code = "LEDGER_FREEZE_HELD"


def check_reason(reason: str) -> str:
    """Refuses a movement that nobody could explain later."""
    if not reason or not reason.strip():
        raise InvalidInput("say why: a reason is in the books and in the audit log", hint="--reason 'invoice 4711'")
    return reason


Name = Annotated[str, Given("The account.", metavar="ACCOUNT", positional=True)]
Amount = Annotated[int, Given("A whole number of the smallest unit.", metavar="AMOUNT", positional=True)]
Part = Annotated[int | None, Given("A part of it; else all.", metavar="AMOUNT")]
Why = Annotated[str, Given("Why, for the audit log.", label="why", metavar="TEXT", check=check_reason)]
Key = Annotated[str | None, Given("Names this movement: sent again, it lands once.", metavar="KEY", once=True)]
Reference = Annotated[
    str, Given("What it is frozen for: batch:ID, or a name of your own.", metavar="REFERENCE", option="--for")
]
HAS = "account {done.called}: {done.available} {done.unit} available, {done.frozen} frozen"


class Ledger(Service):
    """Accounts and money: open, credit, adjust, reverse, statements, and the proof that it adds up."""

    @look("GET /api/ledger/accounts", empty="no account; open one: redrive ledger open NAME")
    async def accounts(
        self,
        search: Annotated[str, Given("Only names that contain this.", metavar="TEXT")] = "",
        after: Annotated[str, Given("Go on behind this one.", metavar="NAME")] = "",
        limit: Limit = 100,
    ) -> MoneyPage[Account]:
        """Accounts by name, with what each can spend and what is frozen."""
        rows = await self._store.sql.feature_rows("ledger", "accounts", after, search, limit)
        found = [account_of(row, self.unit) for row in rows]
        return MoneyPage(found, found[-1].name if len(found) == limit else None, self.unit)

    @look("GET /api/ledger/accounts/{name}", said="{done.sentence}")
    async def show(
        self,
        name: Name,
        at: Annotated[str | None, Given("What it had then: 2026-01-31T12:00:00Z, or 2h: ago.", metavar="TIME")] = None,
    ) -> AccountDetail:
        """One account: what it can spend, and what is frozen for what; now, or at a time."""
        account = await self._account(name)
        if at is None:
            return view_of(AccountDetail, account, freezes=await self._freezes(name), at=None)
        when = parse_moment(at, "the time", await self._store.now())
        had = await statement.place_at(self._store, name, when)
        return view_of(AccountDetail, account, available=had.available, frozen=had.frozen, freezes=[], at=when)

    @look("GET /api/ledger/accounts/{name}/freezes", empty="nothing of account {name} is frozen")
    async def freezes(self, name: Name, limit: Limit = 100) -> MoneyPage[Freeze]:
        """What an account has frozen, and for what; what has not moved for longest comes first."""
        await self._account(name)
        return MoneyPage(await self._freezes(name, limit), None, self.unit)

    async def _freezes(self, name: str, limit: int = 100) -> list[Freeze]:
        rows = await self._store.sql.feature_rows("ledger", "frozen", name, limit)
        return [freeze_of(row) for row in rows]

    @look("GET /api/ledger/accounts/{name}/statement", empty="account {name}: no movement")
    async def statement(
        self,
        name: Name,
        before: Annotated[str | None, Given("Go on from this page's next.", metavar="NEXT")] = None,
        limit: Limit = 50,
        reference: Annotated[
            str | None, Given("Only those for one thing: batch:ID.", metavar="REFERENCE", option="--for")
        ] = None,
    ) -> MoneyPage[Line]:
        """The movements of an account, the latest first, with what it had after each. Those for one thing come without
        what it had after each."""
        await self._account(name)
        if reference is not None:
            found = await statement.of_reference(self._store, name, check_reference(reference), limit)
        else:
            place = None if before is None else statement.parse_place(before)
            found = await statement.page(self._store, name, place, limit)
        return MoneyPage(*found, self.unit)

    async def export(self, name: str, since: str | None = None, until: str | None = None) -> AsyncIterator[str]:
        """Returns the lines of a CSV of all movements, the oldest first. Refuses at once, before the first line."""
        self._session.may(Role.VIEWER)
        await self._account(name)
        return statement.export(self._store, name, *parse_span(since, until), self._session.sight)

    @look("GET /api/ledger/at-risk", empty="no money is at risk")
    async def at_risk(self, limit: Limit = 100) -> RiskPage[Freeze]:
        """Money that is frozen for work that does not move, the largest amounts first."""
        rows = await self._store.sql.feature_rows("ledger", "at_risk", self._own.at_risk_hours, limit)
        return RiskPage(
            [freeze_of(row) for row in rows], None, self.unit, **await totals(self._store, self._session.settings)
        )

    @look("GET /api/ledger/verify", role=Role.OPERATOR, said="{done.sentence}")
    async def verify(self) -> Verdict:
        """Prove that the books are right: postings add up, accounts have what their entries say, none is below zero."""
        return await verify.verify(self._store, self._session.features)

    @property
    def unit(self) -> str:
        """What people call what is counted."""
        return self._own.unit

    @property
    def _own(self) -> LedgerSettings:
        return self._session.settings.of(LedgerSettings)

    async def _account(self, name: str) -> Account:
        rows = await self._store.sql.feature_rows("ledger", "account", name)
        if not rows:
            raise unknown(name)
        return account_of(rows[0], self.unit)

    @action("POST /api/ledger/accounts", said=HAS, page="/ledger/{done.name}", status=201)
    async def open(
        self, name: Name, label: Annotated[str | None, Given("What people call it.", metavar="TEXT")] = None
    ) -> Account:
        """Open an account; it begins with nothing."""
        check_account(name)
        if await self._store.sql.feature_rows("ledger", "account", name):
            raise AccountExists(f"account {name!r} is open already", hint=f"redrive ledger show {name}")
        row = {"name": name, "label": check_label(label), "who": self._who}
        note = Audit(self._who, "LEDGER_OPENED", target=f"account:{name}", scope=name)
        await self._store.apply(Commit(rows=[Rows("ledger", "opened", (row,))], audits=[note]))
        return await self._account(name)

    @action("POST /api/ledger/accounts/{name}/credit", said=HAS, page="/ledger/{done.name}")
    async def credit(self, name: Name, amount: Amount, reason: Why, key: Key = None) -> Adjusted:
        """Bring money to an account; asked again with the same key, it comes once. Much of it waits for a second
        person."""
        return await self._change("credit", name, amount, reason, key)

    @action("POST /api/ledger/accounts/{name}/adjust", role=Role.ADMIN, said=HAS, page="/ledger/{done.name}")
    async def adjust(
        self,
        name: Name,
        change: Annotated[int, Given("+5 or -5, in the smallest unit.", metavar="CHANGE", positional=True)],
        reason: Why,
        key: Key = None,
    ) -> Adjusted:
        """Put an account right, by more or less; never below zero. Much of it waits for a second person."""
        return await self._change("adjust", name, change, reason, key)

    async def _change(self, action: str, name: str, change: int, reason: str, key: str | None) -> Adjusted:
        key = key or str(new_id())
        moved = CHANGES[action](name, change, key, reason=reason)
        return await self._alone(
            name,
            moved,
            change,
            lambda land: self._land_change(self._who, action, name, moved, reason, change, land),
            _request(action, name, change, key, self.unit),
        )

    async def _land_change(
        self, who: str, action: str, name: str, moved: Movement, reason: str, change: int, land: Land
    ) -> Account:
        audited, number = ("LEDGER_CREDITED", "amount") if action == "credit" else ("LEDGER_ADJUSTED", "change")
        return await self._move(who, audited, name, moved, reason, {number: change}, land)

    async def carry_out(self, action: str, asked: Asked, land: Land) -> None:
        """Does a credit, an adjustment or a reversal that somebody else asked for, and that the caller agrees to."""
        self._session.may(declared_by(Ledger)[action].role)
        reason = asked.reason or ""
        if action == "reverse":
            await self._reverse(asked.by, await self._reversible(asked.arguments["movement"]), reason, land)
            return
        name, change, key = (asked.arguments[part] for part in ("account", "change", "key"))
        moved = CHANGES[action](name, change, key, reason=reason)
        await self._land_change(asked.by, action, name, moved, reason, change, land)

    @action("POST /api/ledger/reverse", role=Role.ADMIN, said=HAS, page="/ledger/{done.name}")
    async def reverse(
        self,
        movement: Annotated[str, Given("As the statement names it: credit:KEY.", metavar="MOVEMENT", positional=True)],
        reason: Why,
    ) -> Adjusted:
        """Undo a credit or an adjustment, once, by a movement of its own; never below zero. Much of it waits for a
        second person."""
        made = await self._reversible(movement)
        moved = movements.reverse(made.account, made.name, made.entries, reason=reason)
        return await self._alone(
            made.account,
            moved,
            made.change,
            lambda land: self._reverse(self._who, made, reason, land),
            reversal_request(made, self.unit),
        )

    async def _reversible(self, movement: str) -> Made:
        """Returns a movement that can be reversed; refuses all others, with what to do instead."""
        made = await find_movement(self._store, movement)
        if made.kind in (MovementKind.FREEZE, MovementKind.SETTLE) and made.reference is not None:
            await self._not_held(made.reference)  # whose money it is may settle it itself
        check_reversible(made)
        if before := await self._store.sql.feature_rows("ledger", "movement", movements.reversal_of(made.name)):
            raise already_reversed(made, before[0])
        return made

    async def _reverse(self, who: str, made: Made, reason: str, land: Land) -> Account:
        moved = movements.reverse(made.account, made.name, made.entries, reason=reason)
        target, after = f"account:{made.account}", {"movement": made.name, "change": -made.change}
        note = Audit(who, "LEDGER_REVERSED", reason, target=target, scope=made.account, after=after)

        def conclude(done: Applied) -> list[Audit]:
            if moved.postings[0].key in done.repeated:
                raise already_reversed(made)  # by somebody else, at the same moment
            return [note]

        try:
            await land(Commit(postings=moved.postings, rows=moved.rows, conclusion=conclude))
        except Overdrawn as error:
            taken = moved.taken(available(made.account))
            raise spent(error, await self._account(made.account), taken) from error
        return await self._account(made.account)

    async def _alone(
        self, name: str, moved: Movement, change: int, act: Callable[[Land], Awaitable[Account]], asked: Request
    ) -> Adjusted:
        """Does what one person may do alone, and counts it; what is more, together with what they did within a day, is
        asked for. What is in the books already is neither counted nor asked for again."""
        account = await self._account(name)

        async def counted(puts: Sequence[Put]) -> Account:
            return await act(lambda commit: self._store.apply(replace(commit, puts=[*commit.puts, *puts])))

        approval = None
        if await self._store.sql.feature_rows("ledger", "movement", moved.postings[0].key):
            account = await counted(())
        else:
            rule = self._session.amounts(self._own.approvals_above, WINDOW, "ledger", self.unit)
            try:
                account = await self._session.alone(PlannedAction(None, abs(change)), counted, rule)
            except ApprovalNeeded as needed:
                approval = await self._session.ask(asked, moved.postings[0].note, needed.why)
        return view_of(Adjusted, account, approval=approval)

    @action("POST /api/ledger/accounts/{name}/freeze", role=Role.ADMIN, said=HAS, page="/ledger/{done.name}")
    async def freeze(self, name: Name, amount: Amount, reference: Reference, reason: Why, key: Key = None) -> Account:
        """Freeze money of an account for some work."""
        moved = movements.freeze(name, amount, reference, key or str(new_id()), reason=reason)
        after: dict[str, object] = {"amount": amount, "reference": reference}
        return await self._move(self._who, "LEDGER_FROZEN", name, moved, reason, after)

    @action("POST /api/ledger/accounts/{name}/release", role=Role.ADMIN, said=HAS, page="/ledger/{done.name}")
    async def release(
        self, name: Name, reference: Reference, reason: Why, amount: Part = None, key: Key = None
    ) -> Account:
        """Give back what is frozen for some work, or a part of it."""
        return await self._settle("LEDGER_RELEASED", name, reference, reason, amount, key, captures=False)

    @action("POST /api/ledger/accounts/{name}/capture", role=Role.ADMIN, said=HAS, page="/ledger/{done.name}")
    async def capture(
        self, name: Name, reference: Reference, reason: Why, amount: Part = None, key: Key = None
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
        await self._account(name)
        if amount is None:
            amount = (await self._freeze(name, reference)).amount
        await self._not_held(reference)
        captured, released = (amount, 0) if captures else (0, amount)
        moved = movements.settle(
            name, reference, key or str(new_id()), captured=captured, released=released, reason=reason
        )
        moved = replace(moved, rows=(*moved.rows, *self._unheld(reference)))
        after: dict[str, object] = {"amount": amount, "reference": reference}
        try:
            return await self._move(self._who, action, name, moved, reason, after)
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
        await self._account(name)
        said = Audit(who, action, reason, target=f"account:{name}", scope=name, after=after)
        try:
            commit = Commit(postings=moved.postings, rows=moved.rows, conclusion=once(moved, said))
            await (land or self._store.apply)(commit)
        except Overdrawn as error:
            raise movements.explained(error, await self._account(name), moved) from error
        return await self._account(name)


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
