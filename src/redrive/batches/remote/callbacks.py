"""What a provider's call leads to: the item is looked at now, not when its next poll would be due.

The call is noted in the item's row, once, together with the move that makes its poll due. Where there is nothing to
move (the start has not landed, or a poll is under way that may have come too early) the note stays, and a duty makes
the next poll due: so a call is lost by no order of events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.batches.names import CALLBACK_PATH, FEATURE, LATE, LATE_KEY, SETTLE_QUEUE, STEP_ATTEMPTS, ItemState
from redrive.errors import ConnectionUnknown, RedriveError
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows
from redrive.kernel.task import NewTask, State
from redrive.remote.callbacks import Callback, Callbacks, refused

if TYPE_CHECKING:
    from redrive.app import App

PAGE = 200
ITEM = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,9})")  # a batch, and which of its items
ENDED = (ItemState.FAILED, ItemState.CANCELLED)


class ProviderCallbacks:
    """Takes the calls of providers, for an application: nobody's role is asked, the address is the proof."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._callbacks = Callbacks.of(app.settings, CALLBACK_PATH)

    async def take(self, token: str, connection: str | None = None) -> None:
        """Has the job looked at that an address is about; a repeated call changes nothing. Raises CallbackRefused."""
        if self._callbacks is None:
            raise refused()
        self._callbacks.verify(token, 0.0)  # whoever cannot sign costs the store nothing
        try:
            store = await self._app.at(connection).store()
        except ConnectionUnknown:
            raise refused() from None
        await take_call(store, self._callbacks.verify(token, (await store.now()).timestamp()))


async def take_call(store: Store, callback: Callback) -> bool:
    """Notes a call; returns whether it was the first of this start. One that is about nothing any more is none."""
    row = await _item(store, callback)
    if row is None or row["round"] != callback.round or row["called"]:
        return False
    try:
        await store.apply(_noted(row))
    except RedriveError:
        now = await _item(store, callback)
        if now is None or not now["called"]:
            raise
        return False  # another call was quicker
    return True


async def make_called_due(store: Store, stopping: Callable[[], bool]) -> None:
    """Makes the next poll due of items whose call met a start that had not landed, or a poll under way."""
    while not stopping():
        rows = await store.sql.feature_rows(FEATURE, "items_called", PAGE)
        if rows:
            await store.apply(Commit(transitions=[_due(UUID(str(row["task"]))) for row in rows]))
        if len(rows) < PAGE:
            return


async def any_called(store: Store) -> object:
    """Returns what of this could bring tasks now."""
    return [str(row["task"]) for row in await store.sql.feature_rows(FEATURE, "items_called", 1)]


async def _item(store: Store, callback: Callback) -> dict[str, Any] | None:
    found = ITEM.fullmatch(callback.item)
    if found is None:  # signed with our secret, and no item of a batch
        raise refused()
    rows = await store.sql.feature_rows(FEATURE, "item_at", found[1], int(found[2]))
    return rows[0] if rows else None


def _noted(row: Mapping[str, Any]) -> Commit:
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"]}
    note = Rows(FEATURE, "item_called", (place,))
    if row["state"] in ENDED and row["job"] is not None:
        return Commit(enqueues=[late_task(row)], rows=[note])
    moves = [_due(UUID(str(row["task"])))] if row["state"] == ItemState.PROCESSING and row["job"] is not None else []
    return Commit(transitions=moves, rows=[note])


def late_task(row: Mapping[str, Any]) -> NewTask:
    """Returns the task that looks at a job whose item has ended without it."""
    place = {"batch": str(row["batch"]), "n": row["n"], "round": row["round"]}
    key = f"{LATE_KEY}{place['batch']}:{place['n']}:{place['round']}"
    return NewTask(
        new_id(),
        LATE,
        SETTLE_QUEUE,
        json.dumps(place),
        max_attempts=STEP_ATTEMPTS,
        scope=row["scope"],
        idempotency_key=key,
        own=True,
    )


def _due(task: UUID) -> Transition:
    return Transition(task, Event.DUE, State.QUEUED)
