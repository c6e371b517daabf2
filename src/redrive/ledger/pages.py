"""The pages of the ledger in the console."""

from __future__ import annotations

from fastapi import Response

from redrive.feature.console import FeaturePages, Item, Section, TheForm, ThePage, pages_router
from redrive.ledger.service import Ledger

router = pages_router("ledger")
PAGE_SIZE = 100


@router.get("")
async def accounts(page: ThePage) -> Response:
    search, after = page.query.get("search", ""), page.query.get("after", "")
    found = await page.operator.of(Ledger).accounts(search, after, PAGE_SIZE)
    following = found[-1].name if len(found) == PAGE_SIZE else None
    return await page.render("ledger/accounts.html", accounts=found, search=search, following=following)


@router.post("/open")
async def open_account(page: TheForm) -> Response:
    name = page.form.needed("name", "the name")
    await page.operator.of(Ledger).open(name, page.form.text("label"))
    return page.go(page.link(f"/ledger/{name}"), f"Account {name} is open.")


@router.get("/{name}")
async def account(page: ThePage, name: str) -> Response:
    ledger = page.operator.of(Ledger)
    return await page.render("ledger/account.html", account=await ledger.show(name), freezes=await ledger.frozen(name))


@router.post("/{name}/credit")
async def credit(page: TheForm, name: str) -> Response:
    amount, reason = page.form.whole("amount", "the amount") or 0, page.form.needed("reason", "the reason")
    await page.operator.of(Ledger).credit(name, amount, reason, page.form.text("once"))
    return page.go(page.link(f"/ledger/{name}"), f"{name} has {amount} more.")


pages = FeaturePages(
    router, Section("Money", (Item("Accounts", "/ledger", "Accounts, what they can spend and what is frozen"),))
)
