"""Acts on the connection that the command line names, or on each in turn: nothing spans two stores unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import typer

from redrive.cli.support import output
from redrive.cli.support.connection_option import choose, chosen_connection
from redrive.cli.support.loading import load
from redrive.cli.support.options import actor
from redrive.cli.support.session import opens
from redrive.errors import InvalidInput, RedriveError, StoreError
from redrive.ops.access import Caller, Role
from redrive.ops.connections import UNKNOWN, connections_with
from redrive.settings import ALL

Act = Callable[[], None]


@contextmanager
def on_this(connection: str | None) -> Iterator[None]:
    """Makes what is done within be about this connection; None: as the command line says."""
    with ExitStack() as within:
        if connection is not None:
            within.enter_context(choose(connection))
            within.enter_context(output.about(connection))
        yield


def on_chosen(url: str | None, spec: str | None, act: Act, *, looks: bool = False) -> None:
    """Acts on the connection that is named, or with ``--connection all`` on each of them in turn; where there are
    several and none is named that is refused: what is meant for one must not happen to another. What only ``looks``
    needs no name."""
    names = list(load(url, spec).app.connections)
    if url is not None or len(names) == 1 or chosen_connection() not in (None, ALL):
        act()
    elif chosen_connection() is None and not looks:
        raise _say_which(names, "this is about a whole connection, and there are several")
    else:
        on_these(names, act)


def refuse_all(url: str | None, spec: str | None) -> None:
    """Refuses a command that is about one connection where there are several and none is named."""
    names = list(load(url, spec).app.connections)
    if url is None and len(names) > 1 and chosen_connection() in (None, ALL):
        raise InvalidInput(
            f"this is about one connection, and there are: {', '.join(names)}", hint="say which: --connection NAME"
        )


def on_holders(url: str | None, spec: str | None, target: str, name: str, act: Act) -> None:
    """Acts where a queue, kind or group is: by the routes, and by the tasks and pauses that connections have. Where it
    is on several, ``--connection NAME`` or ``all`` has to say so."""
    app = load(url, spec).app
    if url is not None or len(app.connections) == 1 or chosen_connection() not in (None, ALL):
        act()
        return
    there, away = asyncio.run(_holders(url, spec, target, name))
    if chosen_connection() == ALL:
        on_these([one for one in app.connections if one in there or one in away], act)
        return
    if len(there) != 1:
        told = f"is on {' and '.join(there)}" if there else "is on none of the connections that can be asked"
        raise _say_which(app.connections, f"the {target} {name} {told}")
    for other in away:
        if other not in there:
            output.warn(f"{other} cannot be asked: if there is a {target} {name}, nothing was done about it there")
    with on_this(there[0]):
        act()


async def _holders(url: str | None, spec: str | None, target: str, name: str) -> tuple[list[str], Iterable[str]]:
    loaded = load(url, spec)
    try:
        operator = opens(loaded, Caller(actor(None), Role.ADMIN))
        routed = loaded.app.connections_of(target, name)
        there, away = await connections_with(loaded.app.connections, operator, target, name, routed)
        return there, list(away)
    finally:
        await loaded.app.close()


def on_these(names: Iterable[str], act: Act) -> None:
    """Acts on each of these in turn. One that cannot be used keeps nobody from the others; the worst exit code
    stays."""
    listed, codes = list(names), list[int]()
    unknown: dict[str, RedriveError] = {}
    with output.gathered():
        for name in listed:
            output.heading(name)
            with on_this(name):
                try:
                    codes.append(_code_of(act))
                except UNKNOWN as error:  # another may know it
                    unknown[name] = error
                    output.nothing(error.message)
    if unknown and len(unknown) == len(listed):
        raise unknown[listed[0]]
    if any(codes):
        raise typer.Exit(max(codes))


def _code_of(act: Act) -> int:
    try:
        act()
    except typer.Exit as ended:
        return ended.exit_code
    except StoreError as error:
        output.fail(error)
        return error.exit_code
    return 0


def _say_which(names: Iterable[str], told: str) -> InvalidInput:
    return InvalidInput(
        told,
        hint=f"--connection NAME says which, --connection all each of them in turn; there are: {', '.join(names)}",
    )
