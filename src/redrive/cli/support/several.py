"""Finds the connection that has the tasks a command is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from redrive.app import App
from redrive.errors import InvalidInput
from redrive.ops.connections import on_each
from redrive.ops.operator import Operator


async def connection_with(app: App, operator: Callable[[str], Awaitable[Operator]], ids: Sequence[str]) -> str | None:
    """Returns the connection that has the tasks of these ids, or beginnings of ids; None where none has one of them."""
    known, away = await on_each(app.connections, operator, lambda own: own.tasks.known(ids))
    having = {name: found for name, found in known.items() if found}
    if len(having) > 1:
        listed = "; ".join(f"{', '.join(found)} on {name}" for name, found in having.items())
        raise InvalidInput("these tasks are on several connections", hint=f"name those of each by themselves: {listed}")
    if not having and away:
        name, error = next(iter(away.items()))
        error.message = f"the task is on none of the other connections, and {name} cannot be asked: {error.message}"
        raise error
    return next(iter(having), None)
