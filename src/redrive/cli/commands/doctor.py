"""``redrive doctor``: why does nothing move, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from redrive.cli.support import output
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.diagnosis import Finding, Level
from redrive.ops import doctor as service
from redrive.ops.operator import Operator
from redrive.settings import Triage

_STYLE = {Level.CRITICAL: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan", Level.OK: "green"}
_EXIT = {Level.CRITICAL: 1, Level.WARNING: 1}


def doctor(
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Look at this queue only.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Look at workers, queues, leases, failures and the store itself; say what is wrong and how to mend it. Exit code 1
    when there is something to do."""

    async def look(own: Operator) -> tuple[list[Finding], dict[str, Triage]]:
        return await own.health.examine(queue), own.health.triage(queue)

    found, notes = operate(url, app, look)
    level = service.worst(found)
    if json:
        told = {name: asdict(note) for name, note in notes.items()}
        output.emit({"worst": level.value, "findings": [_document(finding) for finding in found], "triage": told})
    else:
        for finding in found:
            output.say(Text.assemble((f"{finding.level.value:<9}", _STYLE[finding.level]), output.clean(finding.full)))
            if finding.fix:
                output.say(f"         → {output.suggest(finding.fix)}")
        for name, note in notes.items() if queue is not None or level in _EXIT else ():
            _say_triage(name, note)
    raise typer.Exit(_EXIT.get(level, 0))


def _document(finding: Finding) -> dict[str, Any]:
    told = asdict(finding)
    del told["quoted"]
    return told | {"text": finding.full, "fix": finding.fix and output.suggest(finding.fix)}


def _say_triage(queue: str, note: Triage) -> None:
    output.say("", Text(f"queue {output.clean(queue)}", style="bold"), *([note.look] if note.look else []))
    output.say(*(f"  typical: {problem}" for problem in note.problems))
    if note.tables:
        output.say(f"  business tables: {', '.join(note.tables)}")
