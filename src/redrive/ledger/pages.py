"""The pages of the ledger in the console."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response
from fastapi.responses import StreamingResponse

from redrive.console.filters import refuse_unknown
from redrive.console.live import Sample
from redrive.feature import Operator
from redrive.feature.console import FeaturePages, Item, Section, TheForm, ThePage, pages_router, render
from redrive.ledger.reversals import REVERSIBLE, Reversals
from redrive.ledger.service import Ledger

router = pages_router("ledger")
PAGE_SIZE = 100


@router.get("")
async def accounts(page: ThePage) -> Response:
    ledger, search, after = page.operator.of(Ledger), page.query.get("search", ""), page.query.get("after", "")
    found = await ledger.accounts(search, after, PAGE_SIZE)
    return await page.render(
        "ledger/accounts.html",
        accounts=found,
        search=search,
        following=found[-1].name if len(found) == PAGE_SIZE else None,
        totals=await ledger.totals(),
        risks=await ledger.at_risk(20),
        unit=ledger.unit,
    )


@router.post("/open")
async def open_account(page: TheForm) -> Response:
    name = page.form.needed("name", "the name")
    await page.operator.of(Ledger).open(name, page.form.text("label"))
    return page.go(page.link(f"/ledger/{name}"), f"Account {name} is open.")


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
        freezes=await ledger.frozen(name),
        statement=statement,
        reversible=[line for line in statement.lines if line.kind in REVERSIBLE],
        reference=reference,
        unit=ledger.unit,
        at=at,
        past=await ledger.show_at(name, at) if at else None,
    )


@router.get("/{name}/statement.csv")
async def statement(page: ThePage, name: str) -> Response:
    """All movements, or those of a span, as a file, a piece at a time."""
    lines = await page.operator.of(Ledger).export(name, page.query.get("since"), page.query.get("until"))
    headers = {"Content-Disposition": f'attachment; filename="statement-{name.replace(":", "_")}.csv"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


@router.post("/{name}/credit")
async def credit(page: TheForm, name: str) -> Response:
    amount, reason = page.form.whole("amount", "the amount") or 0, page.form.needed("reason", "the reason")
    done = await page.operator.of(Ledger).credit(name, amount, reason, page.form.text("once"))
    if done.approval is not None:
        return page.go(page.link("/approvals"), "It waits for a second person.")
    return page.go(page.link(f"/ledger/{name}"), f"{name} has {amount:,} {page.operator.of(Ledger).unit} more.")


@router.post("/{name}/adjust")
async def adjust(page: TheForm, name: str) -> Response:
    change, reason = page.form.whole("change", "the change") or 0, page.form.needed("reason", "the reason")
    done = await page.operator.of(Ledger).adjust(name, change, reason, page.form.text("once"))
    if done.approval is not None:
        return page.go(page.link("/approvals"), "It waits for a second person.")
    return page.go(page.link(f"/ledger/{name}"), f"{name} was adjusted by {change:+,}.")


@router.post("/{name}/reverse")
async def reverse(page: TheForm, name: str) -> Response:
    movement, reason = page.form.needed("movement", "the movement"), page.form.needed("reason", "the reason")
    done = await page.operator.of(Reversals).reverse(movement, reason)
    if done.approval is not None:
        return page.go(page.link("/approvals"), "It waits for a second person.")
    return page.go(page.link(f"/ledger/{name}"), f"{movement} is undone; both movements stay in the books.")


@router.post("/{name}/release")
async def release(page: TheForm, name: str) -> Response:
    reference, reason = page.form.needed("reference", "the reference"), page.form.needed("reason", "the reason")
    await page.operator.of(Ledger).release(name, reference, reason, key=page.form.text("once"))
    return page.go(page.link(f"/ledger/{name}"), f"What was frozen for {reference} is available again.")


def live_account(name: str) -> Sample:
    async def sample(operator: Operator) -> Mapping[str, str]:
        ledger = operator.of(Ledger)
        return {"#money": render("ledger/money.html", operator, account=await ledger.show(name), unit=ledger.unit)}

    return sample


pages = FeaturePages(
    router,
    Section("Money", (Item("Accounts", "/ledger", "Accounts, what they can spend and what is frozen"),)),
    topics={"ledger-account": live_account},
)
