"""``redrive limits``: what the whole fleet may do with a kind, changed live."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from redrive.cli.declared import show_list
from redrive.cli.support.connections import on_holders
from redrive.cli.support.options import AppName, By, Json, Url
from redrive.cli.support.session import operate
from redrive.ops.operator.control import ControlService
from redrive.ops.operator.declared import declared_by

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
    if none and (concurrency or rate_ms):
        raise typer.BadParameter("--none takes all limits away: leave the others out")
    show = partial(show_list, ControlService, declared_by(ControlService)["limits"], {"kind": kind}, url, app, json)
    if not (concurrency or rate_ms or none):
        show()
        return
    if kind is None:
        raise typer.BadParameter("say which kind")

    def change() -> None:
        operate(url, app, lambda own: own.control.set_limit(kind, concurrency, rate_ms), by=by)
        show()

    on_holders(url, app, "kind", kind, change)
