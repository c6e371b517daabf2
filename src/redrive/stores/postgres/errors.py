"""Translates what asyncpg raises into errors of the port."""

from __future__ import annotations

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
