"""Fails rows that cannot be worked with, each by itself, when a statement over many was refused.

Nothing here runs while all is well. A claim or a tick is refused as a whole; then the rows that it met are tried one by
one, on the server, and what does not pass is mended and moved to ``failed``. Of transitions the culprit is found by
halves, inside of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from redrive.errors import (
    InvalidInput,
    ReactionFailed,
    RedriveError,
    SchemaError,
    StoreBlocked,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
)
from redrive.kernel.applied import Applied
from redrive.kernel.machine import Transition, postpone, reject
from redrive.kernel.task import State
from redrive.stores.features import Features
from redrive.stores.postgres.errors import translate
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.postgres.settle import settle
from redrive.stores.refusals import log_postponed, log_set_aside
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
MOST_ROWS_CHECKED = 3000  # of each lane; more than a claim looks at
# Each costs a moment of waiting; the rest of them is left for the next time.
MOST_BLOCKED_LOOKED_FOR = 20
T = TypeVar("T")


def about_a_row(error: BaseException) -> bool:
    """Returns whether the database refused a statement for what is in a row, as far as its error tells."""
    if isinstance(error, StoreUnavailable | StoreUnusable | SchemaError):
        return False
    return isinstance(error, StoreError | InvalidInput)


async def past_bad_rows(pool: Pool, queues: Sequence[str], call: Callable[[], Awaitable[T]], features: Features) -> T:
    """Returns the answer of a claim or a tick; if it is refused, asks once more without the rows that it cannot work
    with."""
    try:
        return await call()
    except RedriveError as error:
        if not about_a_row(error) or not await _set_aside(pool, queues, features):
            raise
    return await call()


async def _set_aside(pool: Pool, queues: Sequence[str], features: Features) -> int:
    async def find(connection: Connection) -> list[tuple[UUID, str]]:
        found = await connection.fetch(SQL["suspects"], list(queues), MOST_ROWS_CHECKED)
        return [(row["id"], row["why"]) for row in found]

    suspects = await pool.run(find, atomic=True)
    for task_id, why in suspects:
        await pool.run(partial(fail_row, task_id=task_id, why=why, features=features, where=pool.where), atomic=True)
    return len(suspects)


async def fail_row(connection: Connection, task_id: UUID, why: str, features: Features, where: str) -> bool:
    """Fails one live task, whatever is in its row. One of a feature that is not known here, or that refuses its end,
    only makes way."""
    if await connection.fetchval(SQL["mend"], task_id, list(features.reactions.names)):
        try:
            async with connection.transaction():
                moved = await settle(connection, [reject(task_id, why)], features)
            log_set_aside(task_id, why)
            return bool(moved)
        except Exception as raised:
            error = translate(raised, where)
            if not about_a_row(error):
                raise
            why = f"{why}; its feature does not let it end, either: {error.message}"
    moved = await settle(connection, [postpone(task_id)], features)
    log_postponed(task_id, why)
    return bool(moved)


async def settle_in_parts(
    connection: Connection, transitions: Sequence[Transition], features: Features, applied: Applied, where: str
) -> set[UUID]:
    """Applies what can be applied; returns the ids that moved. A task that its worker or recovery would move and whose
    row stands in the way is failed; what an operator wanted of such a row is refused, and the row is left as it is."""
    try:
        instead: dict[UUID, State] = {}
        async with connection.transaction():
            moved = await settle(connection, transitions, features, instead=instead)
        applied.instead.update(instead)
        return moved
    except Exception as raised:
        error = translate(raised, where)
        blocked = isinstance(error, StoreBlocked)
        if not blocked and not about_a_row(error):
            raise
    if blocked and (len(transitions) == 1 or len(applied.refused) >= MOST_BLOCKED_LOOKED_FOR):
        applied.refused.update((transition.task_id, error.message) for transition in transitions)
        return set()
    if len(transitions) > 1:
        half = len(transitions) // 2
        first = await settle_in_parts(connection, transitions[:half], features, applied, where)
        return first | await settle_in_parts(connection, transitions[half:], features, applied, where)
    (transition,) = transitions
    applied.refused[transition.task_id] = error.message
    # Where a feature failed to react, nothing is wrong with the row: it is left until the feature is mended.
    if not transition.rule.fenced or isinstance(error, ReactionFailed):
        return set()
    async with connection.transaction():
        failed = await fail_row(connection, transition.task_id, error.message, features, where)
    return {transition.task_id} if failed else set()
