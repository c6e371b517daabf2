"""``redrive alerts``: what fires; ``silence RULE``: nobody is told of it for a while; ``test``: is anybody told?"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

import typer
from rich.text import Text

from redrive.cli.declared import command_of, group_of, plain_document
from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, show_away
from redrive.cli.support.options import AppName, Json, Url, list_command
from redrive.kernel.diagnosis import Level
from redrive.ops.operator import Operator
from redrive.ops.operator.alerts import AlertService, AlertsView, SilenceView

alerts_cli = group_of(AlertService, without=("current", "services"))
slo = command_of(AlertService, "services")
_STYLE = {Level.CRITICAL: "bold red", Level.WARNING: "yellow"}
Answer = tuple[AlertsView, datetime, dict[str, Any]]


@alerts_cli.callback(invoke_without_command=True)
def list_alerts(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Alerts that fire, the worst first, and those that are about to. Exit code 1 when one fires that nobody has
    silenced, or nobody evaluates the rules any more."""
    if context.invoked_subcommand is not None:
        return

    async def look(own: Operator) -> Answer:
        found = await own.alerts.current()
        return found, await own.health.now(), plain_document(found, own)

    looked = look_at(url, app, look, warns=False)
    if looked.everywhere:
        _of_all(looked, json=json)
    found, now, document = looked.only
    if json:
        output.emit(document)
    else:
        _say(found, now)
    raise typer.Exit(1 if _is_bad(found) else 0)


list_command(alerts_cli, list_alerts)


def _is_bad(found: AlertsView) -> bool:
    return bool(found.loud) or found.stale


def _of_all(looked: Looked[Answer], *, json: bool) -> NoReturn:
    """Shows each connection by itself; one that cannot be looked at is as bad as an alert."""
    found = looked.found
    if json:
        errors = {name: {"error": error} for name, error in looked.missing.get("away", {}).items()}
        output.emit({"connections": {name: document for name, (_, _, document) in found.items()} | errors})
    else:
        for name, (one, now, _) in found.items():
            output.heading(name)
            with output.about(name):
                _say(one, now)
        show_away(looked.away)
    raise typer.Exit(1 if looked.away or any(_is_bad(one) for one, _, _ in found.values()) else 0)


def _say(found: AlertsView, now: datetime) -> None:
    for one in found.firing:
        level = one.level
        style, name = ("dim", "silenced") if one.silence else (_STYLE.get(level, ""), level.value)
        output.say(Text.assemble((f"{name:<9}", style), output.clean(one.text)))
        output.say(f"         {one.rule}, for {output.ago(one.since, now)}{_until(one.silence)}")
        for line in one.detail.splitlines():
            output.say(f"         {output.clean(output.suggest(line))}")
        if one.fix:
            output.say(f"         → {output.suggest(one.fix)}")
    for one in found.pending:
        output.say(
            f"pending  {output.clean(one.text)}",
            f"         {one.rule}, for {output.ago(one.since, now)}",
        )
    if not found.firing and not found.pending:
        fires = "no alert fired when they were last evaluated" if found.stale else "no alert fires"
        output.say(fires if found.evaluated_at else "nobody has evaluated the rules yet")
    shown = [one.silence for one in found.firing]
    for silenced in found.silences:
        if silenced not in shown:
            output.say(f"silenced {silenced.key}{_until(silenced)}")
    if found.stale:
        output.say(
            Text("warning  nobody evaluates the rules any more: what is broken now is not here", style="yellow"),
            output.suggest("         → redrive work --app module:app; redrive doctor says what is broken now"),
        )
    if found.evaluated_at is not None:
        output.say(f"evaluated {output.ago(found.evaluated_at, now)} ago by {output.clean(found.evaluated_by or '')}")
    if found.lost:
        output.say(f"a message reached nobody: {found.lost}")


def _until(silence: SilenceView | None) -> str:
    if silence is None:
        return ""
    why = f": {output.clean(silence.reason)}" if silence.reason else ""
    return f", silenced by {output.clean(silence.by)} until {output.when(silence.until)}{why}"
