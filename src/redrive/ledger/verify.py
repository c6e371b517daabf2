"""Proves that the books are right, in pieces: each piece is one statement, so writers go on meanwhile.

Features bring checks of their own: ``Feature.verify`` names an async generator that gets the store and yields
``Problem``s. Batches prove so that each of theirs was settled once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from redrive.feature import Open, Rows, Store, Withheld
from redrive.features import hooks_of

if TYPE_CHECKING:
    from redrive.feature import Feature

PIECE = 1000
MOST_TOLD = 100


@dataclass(slots=True, frozen=True)
class Problem:
    """``what`` is wrong (``posting``, ``account``, ``freeze`` or what a feature calls it), its name, and how."""

    what: Annotated[str, Open()]
    name: Annotated[str, Open()]
    text: Annotated[str, Open()]


HOOK = "ledger"


async def _nobody(store: Store, reference: str) -> Withheld | None:
    """Holds no money."""
    return None


@dataclass(slots=True, frozen=True)
class LedgerHook:
    """What a feature that freezes money does for the ledger: ``Feature(hooks={"ledger": "package.checks:hook"})``.
    ``check`` yields what ``redrive ledger verify`` finds wrong besides the books. ``holds`` gets what money is frozen
    for; returns why nobody may settle that by hand, and what to do instead. ``refuse`` returns Rows that let nothing
    land while the feature will settle it itself: who looks before may be overtaken, these are in the transaction of the
    money."""

    check: Callable[[Store], AsyncIterator[Problem]]
    holds: Callable[[Store, str], Awaitable[Withheld | None]] = _nobody
    refuse: Callable[[str], Rows | None] = lambda _: None


@dataclass(slots=True)
class Verdict:
    """How much was looked at, and what is wrong, the first hundred; ``wrong`` counts all."""

    postings: Annotated[int, Open()] = 0
    accounts: Annotated[int, Open()] = 0
    checks: Annotated[list[str], Open("Whose books were looked at.")] = field(
        default_factory=lambda: ["postings", "accounts", "freezes"]
    )
    wrong: Annotated[int, Open()] = 0
    problems: Annotated[list[Problem], Open("The first hundred of them.")] = field(default_factory=list)

    @property
    def ok(self) -> Annotated[bool, Open()]:
        return not self.wrong

    @property
    def sentence(self) -> str:
        found = [f"{one.what} {one.name}: {one.text}" for one in self.problems]
        if self.wrong > len(self.problems):
            found.append(f"and {self.wrong - len(self.problems)} more")
        looked = f"{self.postings} postings and {self.accounts} accounts, by {', '.join(self.checks)}"
        return "\n".join([*found, f"the books are right: {looked}" if self.ok else f"{self.wrong} WRONG of {looked}"])

    def add(self, problem: Problem) -> None:
        self.wrong += 1
        if len(self.problems) < MOST_TOLD:
            self.problems.append(problem)


async def verify(store: Store, features: Iterable[Feature]) -> Verdict:
    """Looks at every posting and every account, then asks the features."""
    verdict = Verdict()
    async for after, last, n in pieces(store, "ledger", "postings_piece"):
        verdict.postings += n
        for row in await _wrong(store, "wrong_postings", after, last):
            verdict.add(Problem("posting", row["name"], _posting(row)))
        for row in await _wrong(store, "postings_without_cause", after, last):
            verdict.add(Problem("posting", row["name"], _without_cause(row)))
    async for after, last, n in pieces(store, "ledger", "accounts_piece"):
        verdict.accounts += n
        for row in await _wrong(store, "wrong_accounts", after, last):
            verdict.add(Problem("account", row["name"], _account(row)))
        for row in await _wrong(store, "wrong_freezes", after, last):
            text = f"{row['balance']} are frozen, and {row['total']} by what they are frozen for"
            verdict.add(Problem("freeze", row["name"], text))
        for row in await _wrong(store, "wrong_references", after, last):
            verdict.add(Problem("freeze", row["name"], _reference(row)))
    for name, hook in hooks_of(features, HOOK):
        verdict.checks.append(name)
        async for problem in hook.check(store):
            verdict.add(problem)
    return verdict


async def pieces(store: Store, feature: str, statement: str) -> AsyncIterator[tuple[str, str, int]]:
    """Yields stretches of names, from behind one up to another, and how many there are in each."""
    after = ""
    while True:
        [piece] = await store.sql.feature_rows(feature, statement, after, PIECE)
        if not piece["n"]:
            return
        yield after, piece["last"], piece["n"]
        after = piece["last"]


async def _wrong(store: Store, statement: str, after: str, last: str) -> list[dict[str, Any]]:
    return await store.sql.feature_rows("ledger", statement, after, last, PIECE)


def _posting(row: dict[str, Any]) -> str:
    return "has no entries" if not row["n"] else f"its entries add up to {row['total']}, not 0"


def _without_cause(row: dict[str, Any]) -> str:
    if row["reference"] is not None:
        return f"undoes {row['reference']}, and the books have no such movement"
    if row["name"].startswith(("freeze:", "settle:")):
        return "moves frozen money, and nothing says what that was frozen for"
    return "nothing says why: it has neither a reason nor what it was for"


def _reference(row: dict[str, Any]) -> str:
    if int(row["total"]) < 0:
        return f"{-int(row['total'])} more were settled for {row['reference']} than were frozen for it"
    return f"{row['amount']} are frozen for {row['reference']}, and {row['total']} by its entries"


def _account(row: dict[str, Any]) -> str:
    if row["balance"] != int(row["total"]):
        return f"has {row['balance']}, and its entries add up to {row['total']}"
    return f"is below zero: {row['balance']}"
