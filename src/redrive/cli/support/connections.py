"""Works on the connection that the command line names, or on all: reads from each of them, acts on one or on each in
turn. Nothing spans two stores unasked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import typer

from redrive.cli.support import output
from redrive.cli.support.connection_option import choose, chosen_connection
from redrive.cli.support.loading import load
from redrive.cli.support.options import actor
from redrive.cli.support.session import opens, operate
from redrive.errors import InvalidInput, RedriveError, StoreError
from redrive.ops.access import Caller, Role
from redrive.ops.connections import PATIENCE_S, UNKNOWN, connections_with, latest, on_each
from redrive.ops.operator import Operator
from redrive.settings import ALL

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, frozen=True)
class Looked(Generic[T]):
    """What each connection answered, and why others could not be looked at. ``named``: there are several, so each row
    says where it is; ``everywhere``: all were asked."""

    found: dict[str, T]
    away: dict[str, StoreError]
    named: bool
    everywhere: bool

    @property
    def only(self) -> T:
        """The answer, where one connection was asked."""
        [answer] = self.found.values()
        return answer

    @property
    def column(self) -> list[str]:
        """The head of the column that says which connection, where there are several."""
        return ["connection"] if self.named else []

    def cell(self, name: str) -> list[str]:
        return [name] if self.named else []

    def document(self, name: str, row: dict[str, Any]) -> dict[str, Any]:
        """Returns a row of ``--json`` with the connection that it is on."""
        return {"connection": name, **row} if self.named else row

    def about(self, name: str) -> str | None:
        """Returns the connection that commands to copy have to name."""
        return name if self.named else None

    @property
    def missing(self) -> dict[str, Any]:
        """What a document of ``--json`` says of connections that could not be looked at."""
        errors = {name: {"code": one.code, "message": one.message} for name, one in self.away.items()}
        return {"away": errors} if errors else {}

    @property
    def without(self) -> str:
        """The end of a line with a total: which connections it leaves out."""
        return f" (without {', '.join(self.away)})" if self.away else ""

    def latest(
        self, rows: Callable[[T], Iterable[R]], at: Callable[[R], Any], limit: int | None = None
    ) -> list[tuple[str, R]]:
        """Returns the rows of all answers, the latest first; those of one answer in their own order."""
        if not self.everywhere:
            return [(name, row) for name, answer in self.found.items() for row in rows(answer)]
        return latest({name: rows(answer) for name, answer in self.found.items()}, at, limit)

    def rows(self, rows: Callable[[T], Iterable[R]]) -> list[tuple[str, R]]:
        """Returns the rows of all answers, those of each connection together."""
        return [(name, row) for name, answer in self.found.items() for row in rows(answer)]


def away_text(error: StoreError) -> str:
    return f"cannot be looked at: {error.message}"


def show_away(away: Mapping[str, StoreError]) -> None:
    """Shows connections that could not be looked at among the answers of the others."""
    for name, error in away.items():
        output.heading(name)
        output.say(output.red(away_text(error)))


def looks_at_all(url: str | None, spec: str | None) -> bool:
    """Returns whether a command has several connections to look at: it names none of them, or all."""
    return url is None and chosen_connection() in (None, ALL) and len(load(url, spec).app.connections) > 1


def look_at(
    url: str | None,
    spec: str | None,
    look: Callable[[Operator], Awaitable[T]],
    *,
    patience: float | None = PATIENCE_S,
    warns: bool = True,
) -> Looked[T]:
    """Returns what ``look`` finds on the connection that the command line names, or on all of them; at least one could
    be looked at. People are warned of the others, unless the command shows them itself."""
    if not looks_at_all(url, spec):

        async def named(own: Operator) -> Looked[T]:
            several = own.connection_label is not None
            return Looked({own.connection: await look(own)}, {}, named=several, everywhere=False)

        return operate(url, spec, named)
    loaded = load(None, spec)

    async def use() -> tuple[dict[str, T], dict[str, StoreError]]:
        try:
            caller = Caller(actor(None), Role.ADMIN)
            return await on_each(loaded.app.connections, opens(loaded, caller), look, patience=patience)
        finally:
            await loaded.app.close()

    found, away = asyncio.run(use())
    if not found:
        raise next(iter(away.values()))
    for name, error in away.items() if warns else ():
        output.warn(f"{name} {away_text(error)}")
    return Looked(found, away, named=True, everywhere=True)


def refuse_place(url: str | None, spec: str | None, **given: object) -> None:
    """Refuses what belongs to one connection, such as a place in its list, where all are looked at."""
    options = [f"--{name}" for name, value in given.items() if value]
    if options and looks_at_all(url, spec):
        raise InvalidInput(f"{', '.join(options)} belongs to one connection", hint="say which: --connection NAME")


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
    if not looks_at_all(url, spec):
        act()
    elif chosen_connection() is None and not looks:
        raise _say_which(names, "this is about a whole connection, and there are several")
    else:
        on_these(names, act)


def refuse_all(url: str | None, spec: str | None) -> None:
    """Refuses a command that is about one connection where there are several and none is named."""
    if looks_at_all(url, spec):
        known = ", ".join(load(url, spec).app.connections)
        raise InvalidInput(f"this is about one connection, and there are: {known}", hint="say which: --connection NAME")


def on_holders(url: str | None, spec: str | None, target: str, name: str, act: Act) -> None:
    """Acts where a queue, kind or group is: by the routes, and by the tasks and pauses that connections have. Where it
    is on several, ``--connection NAME`` or ``all`` has to say so."""
    app = load(url, spec).app
    if not looks_at_all(url, spec):
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
