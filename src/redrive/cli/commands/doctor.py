"""``redrive doctor``: why does nothing move, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from redrive.cli.support import output
from redrive.cli.support.connections import look_at
from redrive.cli.support.options import AppName, Json, Url
from redrive.kernel.diagnosis import Level
from redrive.ops import doctor as service
from redrive.ops.access import Role
from redrive.ops.doctor_of_all import ConnectionFinding, Examined, examined, together
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

    async def look(own: Operator) -> tuple[Examined, dict[str, Triage]]:
        return await examined(own, queue), own.health.triage(queue)

    looked = look_at(url, app, look, warns=False)
    found = {name: one for name, (one, _) in looked.found.items()}
    told = together(found, looked.away, Role.ADMIN, named=looked.named)
    notes = {name: note for _, triage in looked.found.values() for name, note in triage.items()}
    level = service.worst([one.finding for one in told])
    if json:
        triage = {name: asdict(note) for name, note in notes.items()}
        output.emit({"worst": level.value, "findings": [_document(one) for one in told], "triage": triage})
    else:
        for finding, connection in told:
            names_it = connection is None or finding.about == ("connection", connection)
            text = output.clean(finding.full if names_it else f"{connection}: {finding.full}")
            output.say(Text.assemble((f"{finding.level.value:<9}", _STYLE[finding.level]), text))
            if finding.fix:
                output.say(f"         → {output.suggest(finding.fix, connection)}")
        for name, note in notes.items() if queue is not None or level in _EXIT else ():
            _say_triage(name, note)
    raise typer.Exit(_EXIT.get(level, 0))


def _document(one: ConnectionFinding) -> dict[str, Any]:
    finding, connection = one
    told = asdict(finding)
    del told["quoted"]
    where = {} if connection is None else {"connection": connection}
    return told | {"text": finding.full, "fix": finding.fix and output.suggest(finding.fix, connection)} | where


def _say_triage(queue: str, note: Triage) -> None:
    output.say("", Text(f"queue {output.clean(queue)}", style="bold"), *([note.look] if note.look else []))
    output.say(*(f"  typical: {problem}" for problem in note.problems))
    if note.tables:
        output.say(f"  business tables: {', '.join(note.tables)}")
