"""``redrive ledger``: what the service declares; ``statement`` also writes a file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from redrive.cli.declared import show_list
from redrive.feature import Operator
from redrive.feature.cli import AppName, Json, Url, group_of, operate
from redrive.ledger.service import Ledger
from redrive.ops.connections import having
from redrive.ops.operator.declared import declared_by

cli = group_of(Ledger, without=("statement",))


@cli.command("statement")
def statement(
    name: Annotated[str, typer.Argument(metavar="ACCOUNT", show_default=False)],
    before: Annotated[str | None, typer.Option("--before", metavar="NEXT", help="Go on from this page's next.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500)] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="All of it as CSV, the oldest first.")] = False,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Of a CSV: from then on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Of a CSV: until then.")] = None,
    reference: Annotated[
        str | None, typer.Option("--for", metavar="REFERENCE", help="Only those for one thing: batch:ID.")
    ] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """The movements of an account, the latest first, with what it had after each."""

    async def write(own: Operator) -> None:
        async for line in await own.of(Ledger).export(name, since, until):
            sys.stdout.write(line)

    if as_csv:
        operate(url, app, write, has=having(name, lambda own: own.of(Ledger).show(name)))
        return
    given = {"name": name, "before": before, "limit": limit, "reference": reference}
    show_list(Ledger, declared_by(Ledger)["statement"], given, url, app, json)
