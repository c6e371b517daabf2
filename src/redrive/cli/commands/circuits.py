"""``redrive circuits``: which are open and why; open, close and probe one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.added_options import list_command
from redrive.cli.support.looked import look_at
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.session import operate
from redrive.ops.circuits import next_probe
from redrive.ops.connections import having
from redrive.ops.operator import Operator
from redrive.ops.operator.circuits import CircuitView, Turned
from redrive.ops.text import span

circuits_cli = typer.Typer(help="Circuits: list them, open, close or probe one.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The circuit.", show_default=False)]


@circuits_cli.callback()
def list_circuits(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Circuits of kinds, the open ones first: since when, why, and when the next probe comes. While one is open, tasks
    of its kinds wait and use no attempts."""
    if context.invoked_subcommand is not None:
        return
    looked = look_at(url, app, lambda own: own.circuits.list())
    found = looked.rows(lambda rows: rows)
    if json:
        output.emit_list([looked.document(name, document(one)) for name, one in found], **looked.missing)
        return
    if not found:
        output.say(f"no kind has a circuit{looked.without}: @app.task(…, circuit=True) gives it one")
        return
    output.table(
        ["circuit", *looked.column, "state", "since", "kinds", "#queued", "next probe", "why"],
        [
            (
                *(one.row.name, *looked.cell(name), one.state.value, span(one.now - one.row.since)),
                *(", ".join(one.row.kinds), one.queued),
                next_probe(one.row, one.now) if one.row.open else "-",
                one.row.reason or "-",
            )
            for name, one in found
        ],
    )


list_command(circuits_cli, list_circuits)


@circuits_cli.command("open")
def open_circuit(
    name: Name, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Have tasks of its kinds wait, as if the other side were down. A probe comes soon, and closes it if it gets
    through; to stop a kind for good: redrive pause --kind NAME."""
    _turn("open", name, reason, by, url, app, json)


@circuits_cli.command("close")
def close_circuit(
    name: Name, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Let tasks of its kinds run at once. It opens again if the other side is still down."""
    _turn("close", name, reason, by, url, app, json)


@circuits_cli.command("probe")
def probe_circuit(
    name: Name, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Let the next probe of an open circuit start now."""
    _turn("probe", name, reason, by, url, app, json)


def _turn(
    verb: str, name: str, reason: str | None, by: str | None, url: str | None, app: str | None, json: bool
) -> None:
    async def act(own: Operator) -> Turned:
        turn = {"open": own.circuits.open, "close": own.circuits.close, "probe": own.circuits.probe}[verb]
        return await turn(name, reason)

    done = operate(url, app, act, by=by, has=having(name, lambda own: own.circuits.show(name)))
    if json:
        output.emit(document(done.circuit) | {"changed": done.changed})
        return
    already = "" if done.changed else "nothing to do: "
    output.say(f"{already}circuit {name} is {done.circuit.told}")


def document(one: CircuitView) -> dict[str, Any]:
    """Returns a circuit as JSON: without the token of its probe's lease."""
    row = asdict(one.row)
    del row["token"], row["version"]
    return row | {"state": one.state.value, "queued": one.queued, "told": one.told}
