"""``redrive doctor``: why does nothing move, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from redrive.app import App
from redrive.cli import output
from redrive.cli.options import AppName, Json, Url
from redrive.cli.session import with_store
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.store import Store
from redrive.ops import doctor as service

_STYLE = {Level.CRITICAL: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan", Level.OK: "green"}
_EXIT = {Level.CRITICAL: 1, Level.WARNING: 1}


def doctor(
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Look at this queue only.")] = None,
    url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Look at workers, queues, leases, failures and the store itself; say what is wrong and how to mend it. Exit code 1
    when there is something to do."""

    async def look(_: App, store: Store) -> list[Finding]:
        return await service.examine(store, queue)

    found = with_store(url, app, look)
    level = service.worst(found)
    if json:
        output.emit({"worst": level.value, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            output.say(Text.assemble((f"{finding.level.value:<9}", _STYLE[finding.level]), output.clean(finding.text)))
            if finding.fix:
                output.say(f"         → {finding.fix}")
    raise typer.Exit(_EXIT.get(level, 0))
