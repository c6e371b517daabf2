"""``redrive limits``: what the whole fleet may do with a kind, changed live."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, on_holders
from redrive.cli.support.options import AppName, By, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.reads import LimitRow
from redrive.ops.operator import Operator

Kind = Annotated[str | None, typer.Argument(metavar="KIND", help="The kind to show or change; else all.")]
AtOnce = Annotated[int | None, typer.Option("--concurrency", metavar="N", min=1, help="At most so many at once.")]
Apart = Annotated[int | None, typer.Option("--rate-ms", metavar="N", min=1, help="Starts at least so far apart.")]
NoLimit = Annotated[bool, typer.Option("--none", help="Take its limits away.")]


def limits(
    kind: Kind = None,
    concurrency: AtOnce = None,
    rate_ms: Apart = None,
    none: NoLimit = False,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Limits of kinds, across all workers: list them, or change one from now on. It is changed on the connection where
    the kind is; where it is on several: --connection NAME, or all."""
    if kind is None and (concurrency or rate_ms or none):
        raise typer.BadParameter("say which kind")
    change = bool(concurrency or rate_ms or none)
    if none and (concurrency or rate_ms):
        raise typer.BadParameter("--none takes all limits away: leave the others out")

    if kind is None or not change:
        _show(look_at(url, app, lambda own: own.control.limits(kind)), kind, json)
        return

    async def work(own: Operator) -> Looked[list[LimitRow]]:
        await own.control.set_limit(kind, concurrency, rate_ms)
        named = own.connection_label is not None
        return Looked({own.connection: await own.control.limits(kind)}, {}, named=named, everywhere=False)

    on_holders(url, app, "kind", kind, lambda: _show(operate(url, app, work, by=by), kind, json))


def _show(looked: Looked[list[LimitRow]], kind: str | None, json: bool) -> None:
    found = looked.rows(lambda rows: rows)
    if json:
        output.emit_list([looked.document(name, asdict(row)) for name, row in found], **looked.missing)
        return
    limited = [(name, row) for name, row in found if row.concurrency or row.rate_ms]
    if not limited:
        output.say((f"{kind} has no limit" if kind else "no kind has a limit") + looked.without)
        return
    output.table(
        ["kind", *looked.column, "#at once", "#running", "#ms apart", "set by"],
        [
            (
                *(r.kind, *looked.cell(name), r.concurrency or "", r.running if r.concurrency else ""),
                *(r.rate_ms or "", r.actor or "settings"),
            )
            for name, r in limited
        ],
    )
