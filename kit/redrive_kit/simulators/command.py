"""``redrive simulate``: those whom redrive speaks to, for demonstrations, labs and tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.options import Command, setting_option, with_options
from redrive.cli.support.sockets import address, bind
from redrive.errors import InvalidInput
from redrive.settings import fields_of
from redrive_kit.simulators.faults import serve
from redrive_kit.simulators.provider.behaviour import Behaviour, table_of, toml_of
from redrive_kit.simulators.provider.server import Simulator

HELP = "Somebody else, for demonstrations and tests: a provider of remote jobs."
simulate_cli = typer.Typer(help=HELP, no_args_is_help=True)
DEFAULT_PORT = 8330

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where it listens.")]
Port = Annotated[int, typer.Option("--port", metavar="NUMBER", min=0, max=65535, help="0 takes any free one.")]
Failures = Annotated[
    str | None,
    typer.Option(
        "--failures",
        metavar="TYPE=SHARE,…",
        help="Which share of jobs fails: model_error, param_error, timeout, network, unknown.",
    ),
]
DownFor = Annotated[float | None, typer.Option("--down-for", metavar="SECONDS", help="Begin with an outage.")]
DownAs = Annotated[
    str | None, typer.Option("--down-as", metavar="HOW", help="What an outage looks like: 503, drop or hang [503].")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", envvar="SIMULATOR_TOKEN", help="What callers have to bear. No real secret."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="NUMBER", help="What chance begins with.")]
Keep = Annotated[
    Path | None, typer.Option("--keep", metavar="FILE", help="Where it writes its jobs, to know them after a restart.")
]
Json = Annotated[bool, typer.Option("--json", help="Say where it listens as JSON, on the first line.")]


@simulate_cli.callback()
def group() -> None:
    """Somebody else, for demonstrations and tests: a provider of remote jobs."""


def _with_behaviour(command: Command) -> Command:
    """Gives a command an option for each number that a provider behaves by; it gets those that were given as one
    ``given``."""
    numbers = {name: one for name, one in fields_of(Behaviour).items() if one.kind in (int, float)}
    added = {name: setting_option(one, f"{one.help} [{one.default:g}]") for name, one in numbers.items()}
    return with_options(command, "given", added, lambda found: {n: v for n, v in found.items() if v is not None})


@simulate_cli.command()
@_with_behaviour
def provider(
    given: dict[str, Any],
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    failures: Failures = None,
    down_for: DownFor = None,
    down_as: DownAs = None,
    token: Token = None,
    seed: Seed = 0,
    keep: Keep = None,
    json: Json = False,
) -> None:
    """A provider of remote jobs over HTTP, until it is stopped. POST /_control changes how it behaves, GET /_seen tells
    what was asked of it."""
    given |= {"failures": None if failures is None else _mix(failures), "down_for": down_for, "down_as": down_as}
    simulator = Simulator(Behaviour(), token=token, seed=seed, keep=keep)
    simulator.change({name: value for name, value in given.items() if value is not None})
    listening = bind(host, port, variable="--port 0")
    _announce(address(listening), token, json)
    with _quietly_stopped():
        serve(simulator.app(), listening)


def _mix(text: str) -> dict[str, float]:
    """Returns shares by type, from ``timeout=0.1,network=0.05``."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            raise InvalidInput(
                f"--failures: {part.strip()!r} is no type with its share", hint="for example timeout=0.1,network=0.05"
            ) from None
    return found


def _announce(url: str, token: str | None, as_json: bool) -> None:
    auth = None if token is None else "SIMULATOR_TOKEN"
    if as_json:
        # On one line, and at once: whoever starts it reads that, and goes on.
        typer.echo(dumps({"url": url, "provider": table_of(url, auth_env=auth)}))
        sys.stdout.flush()
        return
    output.say(f"a provider listens on {url}; for redrive.toml:", "", *toml_of(url, auth_env=auth).splitlines(), "")
    output.say(
        f"an outage of 30 s:   curl {url}/_control -d '{{\"down_for\": 30}}'",
        f"what it was asked:   curl {url}/_seen",
    )
    sys.stdout.flush()


@contextmanager
def _quietly_stopped() -> Iterator[None]:
    """SIGTERM and Ctrl-C end it, and that is no failure: uvicorn raises the signal again once it has stopped."""
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
