"""``redrive providers``: who runs jobs for this application elsewhere, and whether they can be spoken to."""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
from typing import Annotated, Any

import typer

from redrive.app import App
from redrive.cli.support import output
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, Json
from redrive.errors import ConfigError, InvalidInput, Unavailable
from redrive.ids import new_id
from redrive.remote import ProviderError, Status
from redrive.remote.checked import try_job
from redrive.remote.provider import NONSENSE

HELP = "Providers of remote jobs: list them, try one out."
providers_cli = typer.Typer(help=HELP, invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The provider.")]
Payload = Annotated[
    str | None,
    typer.Argument(
        metavar="PAYLOAD_JSON", help="""The item's payload, e.g. '{"text": "a cat"}'.""", show_default=False
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="The idempotency key, to find a job again; else a new one.")
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="Look for so long.")]


@providers_cli.callback(invoke_without_command=True)
def group(context: typer.Context, app: AppName = None, json: Json = False) -> None:
    """Providers of remote jobs: list them, try one out."""
    if context.invoked_subcommand is None:
        list_providers(app, json)


@providers_cli.command("list")
def list_providers(app: AppName = None, json: Json = False) -> None:
    """The providers of redrive.toml and of the application. Exit code 1 where one cannot be used, and what to do."""
    known = load(None, app).app
    rows = [_row(known, name) for name in known.providers]
    if json:
        output.emit_list(rows)
    elif not rows:
        output.nothing("there is no provider: write [providers.NAME] into redrive.toml, or call app.provider()")
    else:
        table = [(row["name"], row["type"], row["where"], row["problem"] or "ready") for row in rows]
        output.table(["provider", "type", "where", "state"], table)
        for hint in dict.fromkeys(row["hint"] for row in rows if row["hint"]):
            output.say(f"→ {output.suggest(hint)}")
    if any(row["problem"] for row in rows):
        raise typer.Exit(1)


@providers_cli.command("try")
def try_provider(
    name: Name, payload: Payload = None, key: Key = None, wait: Wait = 60.0, app: AppName = None, json: Json = False
) -> None:
    """Start one real job at a provider and look at it until it has ended: is the configuration right?"""
    known = load(None, app).app
    told = asyncio.run(_try(known, name, _parsed(payload), key or f"try-{new_id()}", wait, json))
    if json:
        output.emit(told)


def _row(known: App, name: str) -> dict[str, Any]:
    configured = known.settings.providers.get(name)
    try:
        problem, hint, provider = None, None, known.provider_of(name)
        kind = "http" if configured is not None else type(provider.provider).__name__
    except ConfigError as error:
        problem, hint, kind = error.message, error.hint, "http"
    where = "" if configured is None else configured.host
    return {"name": name, "type": kind, "where": where, "problem": problem, "hint": hint}


def _parsed(payload: str | None) -> Any:
    try:
        return None if payload is None else jsonlib.loads(payload)
    except ValueError as error:
        raise InvalidInput(f"the payload is no JSON: {error}", hint="""for example '{"text": "a cat"}'""") from None


async def _try(known: App, name: str, payload: Any, key: str, wait: float, json: bool) -> dict[str, Any]:
    provider = known.provider_of(name)
    job, last = None, None
    try:
        async with asyncio.timeout(wait):
            async for job, status in try_job(provider, payload, key):
                last = status or last
                if not json:
                    _say(job, status)
    except TimeoutError:
        where = f"job {job} is not done" if job else "nothing has come back"
        hint = f"--wait looks for longer, --key {key} finds it again"
        raise Unavailable(f"{name}: {where} after {wait:g} s", hint=hint) from None
    except ProviderError as error:
        raise _told(error) from None
    finally:
        await known.close()
    return {"job": job, **({} if last is None else _document(last))}


def _told(error: ProviderError) -> Exception:
    if error.classification is NONSENSE:
        hint = f"[providers.{error.provider}] in redrive.toml says what stands where in its answers"
        return Unavailable(error.message, hint=hint)
    again = "it may succeed later" if error.transient else "the same again will not help"
    hint = f"{again}; it counts as {error.failure_type} ({error.reason})"
    return Unavailable(error.message, hint=hint) if error.transient else InvalidInput(error.message, hint=hint)


def _say(job: str, status: Status | None) -> None:
    if status is None:
        output.say(f"started: {job}")
        return
    progress = "" if status.progress is None else f"  {status.progress:g} %"
    output.say(f"{status.state}{progress}")
    if status.failure is not None:
        output.say(
            f"  {status.failure.message}", f"  counts as {status.failure.failure_type} ({status.failure.reason})"
        )
    elif status.state.ended:
        output.say(f"  {output.shorten(jsonlib.dumps(status.result, ensure_ascii=False, default=str), 500)}")
    sys.stdout.flush()


def _document(status: Status) -> dict[str, Any]:
    failure = status.failure
    return {
        "state": status.state.value,
        "progress": status.progress,
        "result": status.result,
        "failure": None
        if failure is None
        else {
            "message": failure.message,
            "status_code": failure.status_code,
            "code": failure.code,
            "failure_type": failure.failure_type,
            "reason": failure.reason,
        },
    }
