"""Defines the command line: what it offers, and what its exit codes mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer

from redrive import features
from redrive.cli.commands import (
    cancel,
    doctor,
    drill,
    enqueue,
    erase,
    failed,
    flush,
    forget,
    limits,
    migrate,
    pause,
    purge,
    replay,
    retry,
    settings,
    show,
    smoke,
    stats,
    up,
    version,
    why,
    work,
)
from redrive.cli.commands import list as listing
from redrive.cli.commands.approvals import approvals_cli
from redrive.cli.commands.audit import audit_cli
from redrive.cli.commands.causes import causes_cli
from redrive.cli.commands.operations import operations_cli
from redrive.cli.commands.schedules import schedules_cli
from redrive.cli.commands.tokens import tokens_cli
from redrive.cli.support import output
from redrive.cli.support.loading import app_named_in, load
from redrive.errors import RedriveError
from redrive.settings import misspelt

EXIT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 0, 2, 130  # further ones are said by errors
EPILOG = (
    "Exit codes: 0 done · 1 refused or failed (the message says why) · 2 wrong usage or value "
    "· 3 the store cannot be reached · 130 interrupted. "
    "With --json, stdout is one JSON document and errors are JSON on stderr."
)
# Typer brings its own copy of click or uses the installed one, by version: reach the base class through a public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

cli = typer.Typer(
    name="redrive",
    help="Durable background tasks whose failures can be found, explained and replayed.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: dict[str, dict[str, Any]] = {
    "Run": {"up": up.up, "work": work.work, "migrate": migrate.migrate},
    "Look": {
        "list": listing.list_tasks,
        "show": show.show,
        "why": why.why,
        "failed": failed.failed,
        "stats": stats.stats,
        "doctor": doctor.doctor,
        "smoke": smoke.smoke,
        "settings": settings.settings,
        "version": version.version,
    },
    "Act": {
        "enqueue": enqueue.enqueue,
        "retry": retry.retry,
        "replay": replay.replay,
        "cancel": cancel.cancel,
        "forget": forget.forget,
        "flush": flush.flush,
        "purge": purge.purge,
        "pause": pause.pause,
        "resume": pause.resume,
        "erase": erase.erase,
        "limits": limits.limits,
        "drill": drill.drill,
    },
}
_WITH_SUBCOMMANDS = {
    "causes": causes_cli,
    "operations": operations_cli,
    "approvals": approvals_cli,
    "audit": audit_cli,
    "schedules": schedules_cli,
    "tokens": tokens_cli,
}

EXAMPLES: dict[str, list[str]] = {
    "up": ["redrive up --app reports:app", "redrive up --url sqlite:///try.db --port 0"],
    "work": [
        "redrive work --app reports:app --queue high,default --concurrency 10",
        "redrive work --app reports:app --stop-when-empty",
    ],
    "migrate": [
        "redrive migrate --url postgresql://user@host/database",
        "redrive migrate --status",
        "redrive migrate --down --to 1",
    ],
    "list": ["redrive list --state failed,running --kind BUILD_REPORT --limit 20"],
    "show": ["redrive show 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --stack"],
    "why": ["redrive why 0197f0c2-8d1e-7c3a"],
    "stats": ["redrive stats --causes 20", "redrive stats --json"],
    "settings": ["redrive settings --changed", "redrive settings --app reports:app --json"],
    "version": ["redrive version --json"],
    "enqueue": [
        """redrive enqueue --app reports:app BUILD_REPORT '{"month": "2026-10"}' --key report-2026-10""",
        "redrive enqueue --url sqlite:///reports.db BUILD_REPORT --payload-file report.json --delay 60",
    ],
    "failed": ["redrive failed --kind BUILD_REPORT --limit 20", "redrive failed --stats"],
    "retry": [
        "redrive retry 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'the bucket exists now'",
        "redrive retry --kind BUILD_REPORT --error-code TASK_EXECUTION_FAILED --canary 10 --rate 50 --wait",
        "redrive retry --all --dry-run",
    ],
    "replay": ["redrive replay --kind BUILD_REPORT --limit 200 --by ann --reason 'the bucket exists now'"],
    "forget": ["redrive forget 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'ordered twice'"],
    "flush": [
        "redrive flush --fixed 'the old bucket is gone' --not-idempotent --reason 'all of the old system'",
        "redrive flush --dry-run",
    ],
    "purge": ["redrive purge --queue reports --dry-run"],
    "doctor": ["redrive doctor", "redrive doctor --queue reports --json"],
    "smoke": ["redrive smoke http://127.0.0.1:8321"],
    "drill": ["redrive drill --by ann --out drill.md", "redrive drill --history"],
    "limits": ["redrive limits", "redrive limits BUILD_REPORT --concurrency 2"],
    "causes": [
        "redrive causes",
        "redrive causes resolve 5f1c… --reason 'deployed the fix'",
        "redrive causes retry 5f1c… --canary 10",
    ],
    "operations": ["redrive operations", "redrive operations watch 0197f0c2-…"],
    "approvals": ["redrive approvals --pending", "redrive approvals approve 0197f0c2-… --by bob"],
    "erase": [
        "redrive erase --scope user:4711 --dry-run",
        "redrive erase --task 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --reason 'ticket 812' --by ann",
    ],
    "audit": [
        "redrive audit --actor ann",
        "redrive audit export audit.csv",
        "redrive audit prune --older-than-days 90 --dry-run",
    ],
    "tokens": ["redrive tokens create ann --role operator --days 90", "redrive tokens revoke 1a2b3c4d5e6f"],
    "cancel": ["redrive cancel 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b --by ann --reason 'ordered twice'"],
    "pause": [
        "redrive pause --kind BUILD_REPORT --reason 'the printer is on fire'",
        "redrive pause 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b",
    ],
    "resume": ["redrive resume --kind BUILD_REPORT"],
    "schedules": ["redrive schedules", "redrive schedules run nightly --reason 'the night was too short'"],
}


def _epilog(command: str) -> str:
    # A blank line is what keeps two lines apart in a help text.
    shown = "\n\n".join(["Examples:", *(f"  {example}" for example in EXAMPLES[command])])
    return f"{shown}\n\n{EPILOG}"


for _panel, _listed in _COMMANDS.items():
    for _name, _function in _listed.items():
        cli.command(_name, rich_help_panel=_panel, epilog=_epilog(_name))(_function)


for _name, _sub in _WITH_SUBCOMMANDS.items():
    cli.add_typer(_sub, name=_name, rich_help_panel="Operate", epilog=_epilog(_name))

cli.add_typer(causes_cli, name="groups", hidden=True)  # as causes were called at first


for _feature in features.installed():
    if _feature.commands is not None:
        cli.add_typer(features.load(_feature.commands), name=_feature.name, rich_help_panel="Features", epilog=EPILOG)


Version = Annotated[bool, typer.Option("--version", help="Show the version, as the command version does.")]


@cli.callback(invoke_without_command=True)
def _bare(context: typer.Context, show_version: Version = False) -> None:
    if show_version:
        version.version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help().rstrip() + "\n")


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a character gets a substitute, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    as_json = "--json" in arguments
    output.repeat(arguments)
    if not as_json and not {"work", "up"} & set(arguments[:1]):  # those have it in their log
        for text in misspelt():
            sys.stderr.write(f"warning: {output.clean(text)}\n")
    try:
        code = _commands(arguments).main(list(arguments), prog_name="redrive", standalone_mode=False)
        sys.stdout.flush()
    except RedriveError as error:
        output.report(error, as_json)
        return error.exit_code
    except typer.Abort:
        sys.stderr.write("nothing was done\n")
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget(sys.stdout)
        return EXIT_OK
    except UsageError as error:
        return _misused(error, as_json)
    return code if isinstance(code, int) else EXIT_OK


def _commands(arguments: Sequence[str]) -> Any:
    """All commands. Those of an application's own features are looked for only where they can be meant, by a name that
    is not known otherwise or by --help: importing an application takes time, and may fail."""
    found: Any = typer.main.get_command(cli)
    first = arguments[0] if arguments else "--help"
    helps = first in ("-h", "--help")
    if not helps and (first.startswith("-") or first in found.commands):
        return found
    try:
        spec = app_named_in(arguments)
        own = () if spec is None else load(None, spec).app.features
    except RedriveError:
        if helps:
            return found  # whoever looks for help needs no application for it
        raise
    for feature in own:
        if feature.commands is not None and feature.name not in found.commands:  # else it is installed, and there
            command: Any = typer.main.get_command(features.load(feature.commands))
            command.name, command.rich_help_panel, command.epilog = feature.name, "Features", EPILOG
            found.add_command(command)
    return found


def _misused(error: Any, as_json: bool) -> int:
    path = error.ctx.command_path if getattr(error, "ctx", None) else "redrive"
    # Without a parameter that it is about, the prefix says nothing.
    message = error.format_message().removeprefix("Invalid value: ")
    hint = f"see: {path} --help"
    if message.startswith("No such command") and path == "redrive" and not output.knows_app():
        hint += "; commands of an application's own features need REDRIVE_APP or --app module:app"
    problem = RedriveError(message, hint=hint)
    problem.code = "USAGE"
    output.report(problem, as_json)
    return EXIT_USAGE


def _forget(stream: TextIO) -> None:
    """Drops our output when its reader is gone (``redrive list | head``): nothing more to say, also not at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
