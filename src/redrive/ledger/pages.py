"""The pages of the ledger in the console."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response

from redrive.console.filters import refuse_unknown
from redrive.console.live import Sample
from redrive.feature import Operator
from redrive.feature.console import FeaturePages, Item, Section, ThePage, pages_router, render
from redrive.ledger.reversals import REVERSIBLE
from redrive.ledger.routes import statement_file
from redrive.ledger.service import Ledger

router = pages_router("ledger")
PAGE_SIZE = 100


@router.get("")
async def accounts(page: ThePage) -> Response:
    ledger, search = page.operator.of(Ledger), page.query.get("search", "")
    found = await ledger.accounts(search, page.query.get("after", ""), PAGE_SIZE)
    return await page.render("ledger/accounts.html", accounts=found, search=search, risks=await ledger.at_risk(20))


@router.get("/verify")
async def verify(page: ThePage) -> Response:
    return await page.render("ledger/verify.html", verdict=await page.operator.of(Ledger).verify())


@router.get("/{name}")
async def account(page: ThePage, name: str) -> Response:
    refuse_unknown(page, "at", "before", "reference")
    ledger, at, reference = page.operator.of(Ledger), page.query.get("at"), page.query.get("reference")
    statement = await ledger.statement(name, page.query.get("before"), PAGE_SIZE // 2, reference)
    return await page.render(
        "ledger/account.html",
        account=await ledger.show(name),
        statement=statement,
        reversible=[line for line in statement.items if line.kind in REVERSIBLE],
        reference=reference,
        at=at,
        past=await ledger.show(name, at) if at else None,
    )


@router.get("/{name}/statement.csv")
async def statement(page: ThePage, name: str) -> Response:
    """All movements, or those of a span, as a file."""
    return statement_file(
        name, await page.operator.of(Ledger).export(name, page.query.get("since"), page.query.get("until"))
    )


def live_account(name: str) -> Sample:
    async def sample(operator: Operator) -> Mapping[str, str]:
        return {"#money": render("ledger/money.html", operator, account=await operator.of(Ledger).show(name))}

    return sample


pages = FeaturePages(
    router,
    Section("Money", (Item("Accounts", "/ledger", "Accounts, what they can spend and what is frozen"),)),
    topics={"ledger-account": live_account},
    services={"ledger": Ledger},
)
