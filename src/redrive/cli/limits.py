"""``redrive limits``: what the whole fleet may do with a kind, changed live."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.app import App
from redrive.cli import output
from redrive.cli.options import AppName, By, Json, Url, actor
from redrive.cli.session import with_store
from redrive.kernel.store import LimitRow, Store
from redrive.ops import actions, inspect

Kind = Annotated[str | None, typer.Argument(metavar="KIND", help="The kind to show or change; else all.")]
AtOnce = Annotated[int | None, typer.Option("--concurrency", metavar="N", min=1, help="At most so many at once.")]
Apart = Annotated[int | None, typer.Option("--rate-ms", metavar="N", min=1, help="Starts at least so far apart.")]
NoLimit = Annotated[bool, typer.Option("--none", help="Take its limits away.")]


def limits(
    kind: Kind = None, concurrency: AtOnce = None, rate_ms: Apart = None, none: NoLimit = False,
    by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Limits of kinds, across all workers: list them, or change one from now on."""
    if kind is None and (concurrency or rate_ms or none):
        raise typer.BadParameter("say which kind")
    change = bool(concurrency or rate_ms or none)
    if none and (concurrency or rate_ms):
        raise typer.BadParameter("--none takes all limits away: leave the others out")

    async def work(application: App, store: Store) -> list[LimitRow]:
        if kind is not None:
            await inspect.check_kind(store, kind, [*application.registry.handlers, *application.registry.declared])
        if kind is not None and change:
            await actions.set_limit(store, kind, concurrency=concurrency, rate_ms=rate_ms, actor=actor(by))
        return [row for row in (await store.overview()).limits if kind in (None, row.kind)]

    found = with_store(url, app, work)
    if json:
        output.emit([asdict(row) for row in found])
        return
    limited = [row for row in found if row.concurrency or row.rate_ms]
    if not limited:
        output.say(f"{kind} has no limit" if kind else "no kind has a limit")
        return
    output.table(
        ["kind", "#at once", "#running", "#ms apart", "set by"],
        [(r.kind, r.concurrency or "", r.running if r.concurrency else "", r.rate_ms or "", r.actor or "settings")
         for r in limited],
    )  # fmt: skip
