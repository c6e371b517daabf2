"""``redrive alerts``: what fires; ``silence RULE``: nobody is told of it for a while; ``test``: is anybody told?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, on_chosen, show_away
from redrive.cli.support.options import AppName, By, Json, Reason, Url, list_command
from redrive.cli.support.session import operate
from redrive.kernel.alerts.book import Silence
from redrive.kernel.diagnosis import Level
from redrive.kernel.task import check_seconds
from redrive.kernel.wording import EXAMPLES, seconds_of
from redrive.ops.filters import parse_coming
from redrive.ops.operator import Operator
from redrive.ops.operator.alerts import Alerts, alerts_shown, silence_shown

alerts_cli = typer.Typer(help="Alerts: what fires, silence, unsilence, test.", invoke_without_command=True)
Rule = Annotated[str, typer.Argument(metavar="RULE", help="The rule, as the list names it.", show_default=False)]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Of this queue.")]
_STYLE = {Level.CRITICAL: "bold red", Level.WARNING: "yellow"}


@alerts_cli.callback()
def list_alerts(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Alerts that fire, the worst first, and those that are about to. Exit code 1 when one fires that nobody has
    silenced, or nobody evaluates the rules any more."""
    if context.invoked_subcommand is not None:
        return
    looked = look_at(url, app, lambda own: own.alerts.look(), warns=False)
    if looked.everywhere:
        _of_all(looked, json=json)
    found = looked.only
    if json:
        output.emit(alerts_shown(found))
    else:
        _say(found)
    raise typer.Exit(1 if found.loud or found.stale else 0)


list_command(alerts_cli, list_alerts)


@alerts_cli.command("silence")
def silence(
    rule: Rule,
    queue: Queue = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="08:00 (UTC), or 2026-01-31T09:00Z."),
    ] = None,
    span: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="Or for how long: 30m, 8h, 7d.")] = None,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Nobody is told of a rule until a time; it is evaluated as before, and told when the time is over and it fires
    still."""
    end = _end(until, span)

    def act() -> None:
        made = operate(url, app, lambda own: own.alerts.silence(rule, end, queue, reason), by=by)
        if json:
            output.emit(silence_shown(made))
            return
        output.say(f"{made.key} is silenced until {output.when(made.until)}")

    on_chosen(url, app, act)


@alerts_cli.command("unsilence")
def unsilence(
    rule: Rule,
    queue: Queue = None,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """End a silence now."""

    async def work(own: Operator) -> None:
        await own.alerts.unsilence(rule, queue, reason)

    def act() -> None:
        operate(url, app, work, by=by)
        if json:
            output.emit({"rule": rule, "queue": queue, "silenced": False})
            return
        output.say(f"{rule}{f' of queue {queue}' if queue else ''} is not silenced any more")

    on_chosen(url, app, act)


@alerts_cli.command("test")
def test(by: By = None, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Send a message to every destination that is set here (Slack, webhook, mail): are the addresses right? Exit code 1
    where one could not be reached. Workers use what their own environment says."""
    found = operate(url, app, lambda own: own.alerts.test(), by=by)
    if json:
        output.emit({"destinations": [{"name": name, "fault": fault} for name, fault in found.items()]})
    else:
        for name, fault in found.items():
            output.say(f"{name}: sent" if fault is None else f"{name}: not sent, {fault}")
    if any(found.values()):
        raise typer.Exit(1)


def _end(until: str | None, span: str | None) -> datetime:
    if (until is None) == (span is None):
        raise typer.BadParameter("say --until TIME or --for SPAN")
    if span is not None:
        seconds = seconds_of(span)
        if seconds is None:
            raise typer.BadParameter(f"{span!r} is no span of time; write {EXAMPLES}")
        return datetime.now(UTC) + timedelta(seconds=check_seconds(seconds, "the span"))
    return parse_coming(until or "", "until", datetime.now(UTC))


def _of_all(looked: Looked[Alerts], *, json: bool) -> NoReturn:
    """Shows each connection by itself; one that cannot be looked at is as bad as an alert."""
    found = looked.found
    if json:
        errors = {name: {"error": error} for name, error in looked.missing.get("away", {}).items()}
        output.emit({"connections": {name: alerts_shown(one) for name, one in found.items()} | errors})
    else:
        for name, one in found.items():
            output.heading(name)
            with output.about(name):
                _say(one)
        show_away(looked.away)
    raise typer.Exit(1 if looked.away or any(one.loud or one.stale for one in found.values()) else 0)


def _say(found: Alerts) -> None:
    for one in found.firing:
        level = one.alert.level
        style, name = ("dim", "silenced") if one.silence else (_STYLE.get(level, ""), level.value)
        output.say(Text.assemble((f"{name:<9}", style), output.clean(one.alert.text)))
        output.say(f"         {one.alert.rule}, for {output.ago(one.alert.since, found.now)}{_until(one.silence)}")
        for line in one.alert.detail.splitlines():
            output.say(f"         {output.clean(output.suggest(line))}")
        if one.alert.fix:
            output.say(f"         → {output.suggest(one.alert.fix)}")
    for one in found.pending:
        output.say(
            f"pending  {output.clean(one.alert.text)}",
            f"         {one.alert.rule}, for {output.ago(one.alert.since, found.now)}",
        )
    if not found.firing and not found.pending:
        fires = "no alert fired when they were last evaluated" if found.stale else "no alert fires"
        output.say(fires if found.evaluated else "nobody has evaluated the rules yet")
    shown = {one.silence for one in found.firing}
    for silenced in found.silences:
        if silenced not in shown:
            output.say(f"silenced {silenced.key}{_until(silenced)}")
    if found.stale:
        output.say(
            Text("warning  nobody evaluates the rules any more: what is broken now is not here", style="yellow"),
            output.suggest("         → redrive work --app module:app; redrive doctor says what is broken now"),
        )
    if found.evaluated is not None:
        output.say(f"evaluated {output.ago(found.evaluated, found.now)} ago by {output.clean(found.by)}")
    if found.lost:
        output.say(f"a message reached nobody: {found.lost}")


def _until(silence: Silence | None) -> str:
    if silence is None:
        return ""
    why = f": {output.clean(silence.reason)}" if silence.reason else ""
    return f", silenced by {output.clean(silence.by)} until {output.when(silence.until)}{why}"
