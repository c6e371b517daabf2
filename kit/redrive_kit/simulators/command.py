"""``redrive simulate``: those whom redrive speaks to, for demonstrations, labs and tests."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.sockets import address, bind
from redrive.errors import InvalidInput

if TYPE_CHECKING:
    from redrive_kit.simulators.provider.server import Simulator

HELP = "Somebody else, for demonstrations and tests: a provider of remote jobs."
simulate_cli = typer.Typer(help=HELP, no_args_is_help=True)
DEFAULT_PORT = 8330

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where it listens.")]
Port = Annotated[int, typer.Option("--port", metavar="NUMBER", min=0, max=65535, help="0 takes any free one.")]
Latency = Annotated[
    float | None,
    typer.Option("--latency", metavar="SECONDS", help="How long each request takes, half of it by chance."),
]
Duration = Annotated[float | None, typer.Option("--duration", metavar="SECONDS", help="How long a job runs [2].")]
Spread = Annotated[
    float | None, typer.Option("--spread", metavar="SHARE", help="How much of that is by chance, 0 to 1 [0.5].")
]
Waiting = Annotated[
    float | None, typer.Option("--waiting", metavar="SECONDS", help="How long a job is queued before it runs.")
]
Steps = Annotated[int | None, typer.Option("--steps", metavar="NUMBER", help="Steps in which progress is told [10].")]
Failures = Annotated[
    str | None,
    typer.Option(
        "--failures",
        metavar="TYPE=SHARE,…",
        help="Which share of jobs fails: model_error, param_error, timeout, network, unknown.",
    ),
]
Rate = Annotated[float | None, typer.Option("--rate", metavar="NUMBER", help="Requests a second; beyond that 429.")]
ErrorShare = Annotated[
    float | None, typer.Option("--error-share", metavar="SHARE", help="Share of requests that get a 500.")
]
LostShare = Annotated[
    float | None,
    typer.Option("--lost-share", metavar="SHARE", help="Share of requests that are done, but whose answer is lost."),
]
DownFor = Annotated[float | None, typer.Option("--down-for", metavar="SECONDS", help="Begin with an outage.")]
DownAs = Annotated[
    str | None, typer.Option("--down-as", metavar="HOW", help="What an outage looks like: 503, drop or hang [503].")
]
PageSize = Annotated[int | None, typer.Option("--page-size", metavar="NUMBER", help="Jobs on a page [100].")]
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


@simulate_cli.command()
def provider(
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    latency: Latency = None,
    duration: Duration = None,
    spread: Spread = None,
    waiting: Waiting = None,
    steps: Steps = None,
    failures: Failures = None,
    rate: Rate = None,
    error_share: ErrorShare = None,
    lost_share: LostShare = None,
    down_for: DownFor = None,
    down_as: DownAs = None,
    page_size: PageSize = None,
    token: Token = None,
    seed: Seed = 0,
    keep: Keep = None,
    json: Json = False,
) -> None:
    """A provider of remote jobs over HTTP, until it is stopped. POST /_control changes how it behaves, GET /_seen tells
    what was asked of it."""
    given = {
        "latency": latency,
        "duration": duration,
        "spread": spread,
        "waiting": waiting,
        "steps": steps,
        "failures": None if failures is None else _mix(failures),
        "rate": rate,
        "error_share": error_share,
        "lost_share": lost_share,
        "down_for": down_for,
        "down_as": down_as,
        "page_size": page_size,
    }
    from redrive_kit.simulators.provider.behaviour import Behaviour
    from redrive_kit.simulators.provider.server import Simulator

    simulator = Simulator(Behaviour(), token=token, seed=seed, keep=keep)
    simulator.change({name: value for name, value in given.items() if value is not None})
    listening = bind(host, port, variable="--port 0")
    _announce(address(listening), token, json)
    _serve(simulator, listening)


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
    from redrive_kit.simulators.provider.behaviour import table_of, toml_of

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


def _serve(simulator: Simulator, listening: socket.socket) -> None:
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(
            simulator.app(),
            ws="none",
            log_config=None,
            log_level="critical",  # answers that are cut on purpose are errors to it
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )
    with _quietly_stopped():
        server.run(sockets=[listening])


@contextmanager
def _quietly_stopped() -> Iterator[None]:
    """SIGTERM and Ctrl-C end it, and that is no failure: uvicorn raises the signal again once it has stopped."""
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
