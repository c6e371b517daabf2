"""Looks at all connections of an application: the ones that can be reached answer, the others are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from redrive.app import App
from redrive.errors import InvalidInput, StoreError
from redrive.ops.access import Caller
from redrive.ops.operator import Operator

T = TypeVar("T")


Found = tuple[dict[str, T], dict[str, StoreError]]
Check = Callable[[str], None]


async def on_each(app: App, caller: Caller, check: Check, look: Callable[[Operator], Awaitable[T]]) -> Found[T]:
    """Returns what ``look`` finds on each connection, and why it could not look at the others. ``check`` is given the
    URL of each first, and refuses one that is not to be opened."""

    async def one(name: str) -> T | StoreError:
        try:
            check(app.at(name).url)
            return await look(await app.operator(caller, name))
        except StoreError as error:
            return error

    answers = dict(zip(app.connections, await asyncio.gather(*map(one, app.connections)), strict=True))
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, StoreError)}
    return found, {name: answer for name, answer in answers.items() if isinstance(answer, StoreError)}


async def connection_with(app: App, caller: Caller, check: Check, ids: Sequence[str]) -> str | None:
    """Returns the connection that has the tasks of these ids, or beginnings of ids; None where none has one of them."""
    known, away = await on_each(app, caller, check, lambda own: own.tasks.known(ids))
    having = {name: found for name, found in known.items() if found}
    if len(having) > 1:
        listed = "; ".join(f"{', '.join(found)} on {name}" for name, found in having.items())
        raise InvalidInput("these tasks are on several connections", hint=f"name those of each by themselves: {listed}")
    if not having and away:
        name, error = next(iter(away.items()))
        error.message = f"the task is on none of the other connections, and {name} cannot be asked: {error.message}"
        raise error
    return next(iter(having), None)
