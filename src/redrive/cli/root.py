"""Builds the commands for Typer, each when it is called: none is imported for another."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive import features
from redrive.cli import quick
from redrive.cli.support import output
from redrive.cli.support.connection_option import WITHOUT, add_connection, forget_connection
from redrive.cli.support.help_page import Page, Panel, first_sentence, panels_of, show
from redrive.cli.support.kit import kit_command
from redrive.cli.table import ABOUT, COMMANDS, EPILOG, EXAMPLES, HELP_OPTIONS, HIDDEN, KIT_COMMANDS, VERSION_HELP
from redrive.errors import RedriveError

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature

EXIT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 0, 2, 130
# Typer brings its own copy of click or uses the installed one, by version: reach the base class through a public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
Version = Annotated[bool, typer.Option("--version", help=VERSION_HELP)]
TARGETS = {name: target for listed in COMMANDS.values() for name, (target, _) in listed.items()} | HIDDEN

cli = typer.Typer(
    name="redrive",
    help=ABOUT,
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": HELP_OPTIONS},
)


@cli.callback(invoke_without_command=True)
def _bare(context: typer.Context, show_version: Version = False) -> None:
    if show_version:
        quick.say_version(json=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help())


def call(arguments: Sequence[str], own: Sequence[Feature] = ()) -> int:
    """Runs a command; returns its exit code. ``own`` are the features of the application, as far as it is known."""
    forget_connection()
    try:
        code = root(own).main(list(arguments), prog_name="redrive", standalone_mode=False)
    except typer.Abort:
        sys.stderr.write("nothing was done\n")
        return EXIT_INTERRUPTED
    except UsageError as error:
        return _misused(error, "--json" in arguments)
    return code if isinstance(code, int) else EXIT_OK


def root(own: Sequence[Feature] = ()) -> Any:
    """Returns the group of all commands."""
    found: Any = typer.main.get_command(cli)
    found.commands = Commands([*features.installed(), *own])
    _take_plain_values(found)
    found.format_help = lambda _context, formatter: formatter.write(quick.all_commands(found.commands.of_features()))
    return found


class Commands(Mapping[str, Any]):
    """All commands by name; each is imported when it is asked for."""

    def __init__(self, known: Sequence[Feature]) -> None:
        brought = {feature.called: feature.commands for feature in known if feature.commands is not None}
        self._about = {feature.called: feature.about for feature in known}
        self._brought = {name: target for name, target in brought.items() if name not in TARGETS}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*TARGETS, *self._brought))

    def __len__(self) -> int:
        return len(TARGETS) + len(self._brought)

    def of_features(self) -> list[tuple[str, str]]:
        """Returns the commands that features bring, each with what it does."""
        return [(name, self._about[name] or first_sentence(self[name].help or "")) for name in self._brought]

    def _load(self, name: str) -> Any:
        if name in self._brought:
            return _built(name, features.load(self._brought[name]), EPILOG)
        if name in KIT_COMMANDS:
            return _built(name, kit_command(name, TARGETS[name]), _epilog(name))
        module, _, attribute = TARGETS[name].partition(":")
        found = getattr(import_module(f"redrive.cli.commands.{module}"), attribute)
        return _built(name, found, _epilog(name), hidden=name in HIDDEN)


def _built(name: str, what: Any, epilog: str, hidden: bool = False) -> Any:
    """Returns the command of a function, or the group of a Typer application."""
    what = what if name in WITHOUT else add_connection(what)
    above = typer.Typer(add_completion=False, pretty_exceptions_enable=False, callback=_bare)
    if isinstance(what, typer.Typer):
        above.add_typer(what, name=name, epilog=epilog, hidden=hidden)
    else:
        above.command(name, epilog=epilog, hidden=hidden)(what)
    group: Any = typer.main.get_command(above)
    command = group.commands[name]
    _adapt(command)
    return command


def _take_plain_values(command: Any) -> None:
    """Keeps Typer from making a Pydantic adapter for text, defaults, and what was not given: Pydantic takes longer to
    import than most commands to run."""
    parameters = command.get_params
    command.get_params = lambda context: [_plain(one) for one in parameters(context)]


def _plain(parameter: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    if described is None or "process_value" in vars(parameter):
        return parameter  # an older Typer makes none; or it has been here before
    check = parameter.process_value
    nothing = () if getattr(parameter, "multiple", False) or parameter.nargs == -1 else None

    def process_value(context: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            value = nothing
        elif type(value) is not described.annotation:
            return check(context, value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    parameter.process_value = process_value
    return parameter


def _adapt(command: Any) -> None:
    """Makes a command show its help and read its options as all others do, also one of a feature's own Typer
    application."""
    command.rich_markup_mode = None
    command.format_help = lambda context, formatter: formatter.write(show(_page(command, context)))
    _take_plain_values(command)
    for inner in getattr(command, "commands", {}).values():
        _adapt(inner)


def _page(command: Any, context: Any) -> Page:
    options = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and not getattr(parameter, "hidden", False):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            row = (record[0].partition(" <")[0], record[1])  # without the type that Typer adds to its name
            options.append((getattr(parameter, "rich_help_panel", None) or usual, row))
    options.sort(key=lambda option: (option[0] != "Arguments", option[0] != "Options"))
    inner = getattr(command, "commands", {})
    listed = [(name, first_sentence(one.help or "")) for name, one in inner.items() if not one.hidden]
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    panels = [*panels_of(options), Panel("Commands", listed)]
    return Page(usage, command.help or "", panels, command.epilog or "")


def _epilog(command: str) -> str:
    # A blank line is what keeps two lines apart in a help text.
    shown = [f"  {example}" for example in EXAMPLES.get(command, ())]
    return "\n\n".join([*(["Examples:", *shown] if shown else []), EPILOG])


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
