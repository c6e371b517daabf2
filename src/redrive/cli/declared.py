"""Derives the commands of what services declare (``redrive.ops.operator.declared``): options, table and ``--json``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, get_args, get_origin

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import Looked, look_at, on_chosen, refuse_place
from redrive.cli.support.options import AppName, By, Create, Json, Url, option_of
from redrive.cli.support.session import operate
from redrive.ops.connections import having
from redrive.ops.given import flat, gathered
from redrive.ops.inspect import plain
from redrive.ops.operator import Operator
from redrive.ops.operator.declared import Declared, Page, columns, declared_by, document, shown_fields
from redrive.ops.operator.session import Service

LOOKS = {"url": Url, "app": AppName, "json": Json}
ACTS = {"by": By, **LOOKS}
FLAGS = ("json", "create")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def group_of(*services: type[Service], without: Sequence[str] = ()) -> typer.Typer:
    """Returns the group of commands for what services declare; those ``without`` are written by hand. Without a command
    it is the ``list`` of the first of them."""
    made = typer.Typer(help=services[0].__doc__, invoke_without_command="list" in declared_by(services[0]))
    for service in services:
        for name, one in declared_by(service).items():
            if name == "list" and service is services[0]:
                made.callback()(_list(service, one, alone=False))
            if name not in without:
                made.command(one.command, context_settings=_settings(one))(_command(service, one))
    return made


def command_of(service: type[Service], verb: str) -> Callable[..., None]:
    """Returns the command of one thing that a service declares, where it stands outside a group."""
    return _command(service, declared_by(service)[verb])


def _command(service: type[Service], one: Declared) -> Callable[..., None]:
    if one.lists:
        return _list(service, one)
    return _show(service, one) if one.looks else _act(service, one)


def _settings(one: Declared) -> dict[str, Any]:
    """Lets a number that is named by its place be below zero."""
    return {"ignore_unknown_options": any(given.positional and given.base is int for given in one.parameters)}


def _list(service: type[Service], one: Declared, alone: bool = True) -> Callable[..., None]:
    """``alone``: a command of its own; else it is what a group does without one."""

    def call(url: str | None, app: str | None, json: bool, context: typer.Context | None = None, **given: Any) -> None:
        if context is None or context.invoked_subcommand is None:
            show_list(service, one, _by_name(one, given), url, app, json)

    context = [] if alone else [inspect.Parameter("context", _KEYWORD, annotation=typer.Context)]
    return _described(call, one, [*context, *_options(one, LOOKS)])


def show_list(
    service: type[Service], one: Declared, given: dict[str, Any], url: str | None, app: str | None, json: bool
) -> None:
    """Shows a list that is declared, of all connections; one that belongs to a thing, of the connection that has
    it."""

    async def look(own: Operator) -> tuple[Page[Any], datetime, Any]:
        found = await getattr(own.of(service), one.verb)(**gathered(one.parameters, given))
        page = found if isinstance(found, Page) else Page(found, None)
        return page, await own.health.now(), plain_document(page, own)

    if any(parameter.in_path for parameter in one.parameters):
        found = operate(url, app, look, has=_finds(service, one, given))
        looked = Looked({"": found}, {}, named=False, everywhere=False)
    else:
        if one.continued_by is not None:
            refuse_place(url, app, **{one.continued_by: given[one.continued_by]})
        looked = look_at(url, app, look)
    rows = _rows(looked, one, given)
    if json:
        named = [looked.document(name, seen) for name, (_, seen) in rows]
        whole = {"next": None} if looked.everywhere else looked.only[2]
        output.emit({**whole, "items": named, **looked.missing})
        return
    if not rows:
        text, colon, hint = one.empty.format(**given).partition(":")
        output.say(f"{text}{looked.without}{colon}{hint}")
        return
    say_table(one.view, [(name, row, looked.found[name][1]) for name, (row, _) in rows], looked)
    if note := next(iter(looked.found.values()))[0].note:
        output.say("", *map(output.suggest, note.splitlines()))
    if not looked.everywhere and looked.only[0].next is not None:
        output.say(f"more: --{one.continued_by} {looked.only[0].next}")


def _rows(looked: Looked[Any], one: Declared, given: dict[str, Any]) -> list[tuple[str, tuple[Any, Any]]]:
    """Returns the rows of all connections, each as it is and as it is seen; the latest first where lists begin with
    it."""

    def rows(answer: tuple[Page[Any], datetime, Any]) -> list[tuple[Any, Any]]:
        return list(zip(answer[0].items, answer[2]["items"], strict=True))

    if one.continued_by != "before" or "created_at" not in shown_fields(one.view):
        return looked.rows(rows)
    return looked.latest(rows, lambda row: row[0].created_at, given.get("limit"))


def _show(service: type[Service], one: Declared) -> Callable[..., None]:
    def call(url: str | None, app: str | None, json: bool, **arguments: Any) -> None:
        given = _by_name(one, arguments)

        async def look(own: Operator) -> tuple[Any, datetime, Any]:
            found = await getattr(own.of(service), one.verb)(**gathered(one.parameters, given))
            where = {} if own.connection_label is None else {"connection": own.connection_label}
            return found, await own.health.now(), plain_document(found, own) | where

        found, now, seen = operate(url, app, look, has=_finds(service, one, given))
        if json:
            output.emit(seen)
        else:
            _say_fields(one, given, found, seen, now)
        if not getattr(found, "ok", True):
            raise typer.Exit(1)

    return _described(call, one, _options(one, LOOKS))


def _say_fields(one: Declared, given: dict[str, Any], found: Any, seen: dict[str, Any], now: datetime) -> None:
    """Says what is declared of a thing, else its fields; then each list of further things, as a table."""
    tables = {name: view for name, view in _views_within(one.view).items() if columns(view)}
    if one.said:
        output.say(*output.suggest(one.sentence(given, found)).splitlines())
    else:
        width = max(map(len, seen), default=0)
        for name, value in seen.items():
            if name not in tables:
                output.say(f"{name.replace('_', ' '):<{width}}  {_cell(value, now)}")
    for name, view in tables.items():
        if rows := getattr(found, name):
            say_table(view, [("", row, now) for row in rows], title=name.replace("_", " "))


def say_table(
    view: type, rows: Iterable[tuple[str, Any, datetime]], looked: Looked[Any] | None = None, title: str | None = None
) -> None:
    """Says rows of a view as a table, each by the clock of its connection; which that is stands behind the first
    column, where there are several."""
    first, *others = columns(view)
    output.table(
        [first[0], *(looked.column if looked else ()), *(_heading(view, name) for name, _ in others)],
        [
            (
                _cell(first[1](row, now), now),
                *(looked.cell(name) if looked else ()),
                *(_cell(of(row, now), now) for _, of in others),
            )
            for name, row, now in rows
        ],
        title=title,
    )


def _views_within(view: type) -> dict[str, type]:
    """Returns the fields of a view that are lists of views."""
    kinds = {
        name: get_args(kind) for name, (kind, _) in shown_fields(view).items() if get_origin(kind) in (list, tuple)
    }
    return {name: inner[0] for name, inner in kinds.items() if hasattr(inner[0], "__dataclass_fields__")}


def _act(service: type[Service], one: Declared) -> Callable[..., None]:
    def call(by: str | None, url: str | None, app: str | None, json: bool, **given: Any) -> None:
        create = given.pop("create") if one.creates else None
        act = partial(run, service, one, _by_name(one, given), by, url, app, json, create)
        on_chosen(url, app, act) if one.whole else act()

    return _described(call, one, _options(one, {**ACTS, "create": Create} if one.creates else ACTS))


def run(
    service: type[Service],
    one: Declared,
    given: dict[str, Any],
    by: str | None,
    url: str | None,
    app: str | None,
    json: bool,
    create: bool | None = None,
) -> None:
    """Does what is declared, and says what came of it."""

    async def act(own: Operator) -> tuple[Any, Any]:
        done = await getattr(own.of(service), one.verb)(**gathered(one.parameters, given))
        return done, plain_document(done, own)

    done, seen = operate(url, app, act, by=by, create=create, has=_finds(service, one, given))
    if json:
        output.emit(seen)
    else:
        said = [output.suggest(line) for line in one.sentence(given, done).splitlines()]
        if (secret := getattr(done, "secret", None)) is None:
            output.say(*said)
        else:
            output.say(secret)
            typer.echo("\n".join([*said, "This secret is shown only now: hand it over, or keep it safe."]), err=True)
    if not getattr(done, "ok", True):
        raise typer.Exit(1)


def _by_name(one: Declared, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns what a command was given, by the names that the declaration has for it."""
    return {parameter.name: arguments[parameter.argument] for parameter in flat(one.parameters)}


def _finds(service: type[Service], one: Declared, given: dict[str, Any]) -> Any:
    """Returns what finds the connection that has the thing which the command names."""
    named = [parameter.name for parameter in one.parameters if parameter.in_path]
    if one.creates or len(named) != 1 or "show" not in declared_by(service):
        return None
    name = given[named[0]]
    return having(name, lambda own: getattr(own.of(service), "show")(name))  # noqa: B009


def _options(one: Declared, common: dict[str, Any]) -> list[inspect.Parameter]:
    given = flat(one.parameters)
    own = [inspect.Parameter(p.argument, _KEYWORD, default=p.default, annotation=option_of(p)) for p in given]
    return own + [
        inspect.Parameter(name, _KEYWORD, default=False if name in FLAGS else None, annotation=option)
        for name, option in common.items()
    ]


def _described(call: Callable[..., None], one: Declared, options: list[inspect.Parameter]) -> Callable[..., None]:
    """Returns a command with these options, and what the declaration says of it."""
    call.__doc__ = one.help
    call.__name__ = one.verb
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in options}
    return call


def plain_document(found: Any, own: Operator) -> Any:
    """Returns the document of ``--json`` of what is found."""
    return _plain(document(found, own.sight))


def _plain(seen: Any) -> Any:
    """Returns what is seen as plain JSON: documents of tasks as values, not as text."""
    if isinstance(seen, dict):
        return {name: _plain(value) for name, value in seen.items()}
    return [_plain(one) for one in seen] if isinstance(seen, list) else plain(seen)


def _heading(view: type, column: str) -> str:
    """Returns the heading of a column; those of numbers say so."""
    kind, shown = next(one for one in shown_fields(view).values() if one[1].column == column)
    return f"#{column}" if shown.number or (kind in (int, int | None) and shown.cell is None) else column


def _cell(value: Any, now: datetime) -> object:
    """Returns a value for people."""
    if isinstance(value, datetime):
        return output.ago(value, now)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(_cell(one, now)) for one in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(one, now)}" for name, one in value.items() if one is not None)
    return "-" if value is None else value
