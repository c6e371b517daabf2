"""``/api/ledger``: what the service declares; what an account had, by the address of its own; and its statement as a
file."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import Response
from fastapi.responses import StreamingResponse

from redrive.api.encode import respond
from redrive.feature.api import TheOperator, router_of
from redrive.ledger.service import Ledger
from redrive.ops.operator.declared import document

CSV = "text/csv; charset=utf-8"
router = router_of(Ledger, "ledger")


@router.get("/api/ledger/accounts/{name}/at")
async def account_at(name: str, time: str, operator: TheOperator) -> Response:
    """What an account could spend at a time (``2h`` ago, or 2026-03-01T08:30Z), and what was frozen."""
    return await respond(document(await operator.of(Ledger).show(name, time), operator.sight))


@router.get(
    "/api/ledger/accounts/{name}/statement.csv",
    response_class=StreamingResponse,
    responses={200: {"description": "All of it, the oldest first", "content": {CSV: {}}}},
)
async def statement_csv(
    name: str, operator: TheOperator, since: str | None = None, until: str | None = None
) -> StreamingResponse:
    """All movements, streamed. Cells that a spreadsheet would take for formulas begin with an apostrophe."""
    return statement_file(name, await operator.of(Ledger).export(name, since, until))


def statement_file(name: str, lines: AsyncIterator[str]) -> StreamingResponse:
    """Returns a statement as a file, a piece at a time."""
    headers = {"Content-Disposition": f'attachment; filename="statement-{name.replace(":", "_")}.csv"'}
    return StreamingResponse(lines, media_type=CSV, headers=headers)
