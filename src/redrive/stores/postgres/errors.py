"""Translates what asyncpg raises into errors of the port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
from asyncpg import exceptions as pg

from redrive.errors import (
    ConfigError,
    InvalidInput,
    PayloadInvalid,
    RedriveError,
    StoreBlocked,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    TooManyNames,
)
from redrive.stores.refusals import NEVER_NEGATIVE, below_zero, no_usable_schema, not_now, overdrawn

# The same call may succeed later, on this or another connection.
_PASSING: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.TooManyConnectionsError,
    pg.ReadOnlySQLTransactionError,
    pg.TransactionRollbackError,
    pg.LockNotAvailableError,
    pg.InternalClientError,
    asyncpg.InterfaceError,
)
_SCHEMA = (pg.InvalidSchemaNameError, pg.UndefinedTableError, pg.UndefinedFunctionError, pg.UndefinedColumnError)
_LOGIN = (pg.InvalidAuthorizationSpecificationError, pg.InvalidCatalogNameError)
GRANTS = (
    "as the owner of the schema grant the role what it is for: select redrive.grant_worker('ROLE') (runs tasks),"
    " redrive.grant_api('ROLE') (serves the API, operates) or redrive.grant_producer('ROLE') (enqueues)"
)


class KeyBlocked(StoreError):
    """Raised when a transaction that is still open holds an idempotency key."""


class IdTaken(StoreError):
    """Raised when a row with this id is there already."""


def translate(error: BaseException, where: str) -> RedriveError:
    """Returns an error of the port for one of the driver's."""
    # Without DETAIL: it quotes whole rows, and with them payloads that do not belong into logs.
    said = str(getattr(error, "message", None) or error).strip() or type(error).__name__
    match error:
        case RedriveError():
            return error
        case pg.CheckViolationError() if NEVER_NEGATIVE in said:
            return below_zero(overdrawn(error.detail))
        case pg.UniqueViolationError() if "task_pkey" in said:
            return IdTaken("a task with this id exists already")
        case pg.TooManyConnectionsError():
            return StoreUnavailable(
                f"{where} has no connection left: {said}", hint="raise max_connections, or lower the number of workers"
            )
        case pg.DiskFullError() | pg.OutOfMemoryError():
            return StoreUnusable(f"{where} is out of space: {said}", hint="free disk space on the database server")
        case _ if isinstance(error, _LOGIN):
            return ConfigError(
                f"{where} refused the login: {said}", hint="check user, password and database name in the URL"
            )
        case _ if isinstance(error, _SCHEMA):
            return no_usable_schema(where, said)
        case pg.InsufficientPrivilegeError():
            return StoreError(
                f"{where}: {said}",
                hint=getattr(error, "hint", None) or GRANTS,
            )
        case pg.InvalidParameterValueError() if said.startswith("too many names:"):
            return TooManyNames(said, hint=getattr(error, "hint", None))
        case pg.InvalidParameterValueError() if said.startswith("payload "):
            return PayloadInvalid(said, hint=getattr(error, "hint", None))
        case pg.InvalidParameterValueError() | pg.DataError():
            return InvalidInput(said, hint=getattr(error, "hint", None))
        case pg.LockNotAvailableError():
            return StoreBlocked(
                f"{where}: an open transaction holds what this needs: {said}",
                hint="it goes on when that transaction ends; pg_blocking_pids() in pg_stat_activity says whose it is",
            )
        case asyncpg.InterfaceError() | pg.InternalClientError() | pg.ConnectionDoesNotExistError():
            # The driver's words are about its own state. What the server says, the next try will hear.
            lost = not_now(where, "the connection is gone", hint="is the server running and reachable?")
            lost.vague = True
            return lost
        case _ if isinstance(error, _PASSING):
            return not_now(where, said, hint="is the server running and reachable?")
    return StoreError(f"{where} refused: {said}")


def is_connect_rejection_by_pooler(error: BaseException) -> bool:
    """Returns whether PgBouncer turned away start-up parameters that it does not know."""
    return "unsupported startup parameter" in str(error)


# Rides out short interruptions of the store.

INTERRUPTION_PATIENCE_S = 10.0
T = TypeVar("T")


async def patiently(
    attempt: Callable[[bool], Awaitable[T]], again: bool, final: tuple[type[StoreUnavailable], ...] = ()
) -> T:
    """Calls ``attempt`` until it succeeds or its time is over, with whether an earlier try may have landed. For what
    carries the producer's own ids: a repeat cannot add a task twice. ``final``: interruptions after which it must not
    be repeated."""
    give_up = time.monotonic() + INTERRUPTION_PATIENCE_S
    delay = 0.05
    while True:
        try:
            return await attempt(again)
        except (StoreUnavailable, IdTaken) as error:
            # Taken by an earlier try that was committed at this moment: the next one sees it.
            mine = again or not isinstance(error, IdTaken)
            if not mine or isinstance(error, final) or time.monotonic() + delay > give_up:
                raise
        again = True
        await asyncio.sleep(delay)
        delay = min(delay * 2, 1.0)
