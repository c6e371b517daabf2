"""Handlers of the steps of a remote batch, each of several batches at once: dispatch, release, settle; and of questions
about jobs whose items have ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from redrive.batches.batch import BatchUnknown
from redrive.batches.names import DISPATCH, FEATURE, LATE, RECONCILE, RELEASE, SETTLE, BatchState
from redrive.batches.remote import commits
from redrive.batches.remote.model import RemoteBatch, count_items, find_remote
from redrive.batches.remote.passes import Passes
from redrive.batches.remote.reconcile import last_look, look_at_late_job, reconcile_page
from redrive.batches.remote.upkeep import cancel_unwanted
from redrive.batches.settings import BatchSettings
from redrive.errors import ChangedMeanwhile, InvalidInput, RedriveError
from redrive.kernel.outcome import Snooze
from redrive.ledger.accounts import available

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.context import Context
    from redrive.kernel.ports.store import Store

Step = Callable[["Store", RemoteBatch, "Context"], Awaitable[Any]]
Ask = Callable[["App", "Store", dict[str, Any], Any], Awaitable[Any]]
TRIES = 5  # where somebody else changes the same batch
AGAIN_S = 5.0  # until a settlement looks again at items that somebody retried at the last moment
LOOKS = 2  # that did not end: where workers die or hang of asking the provider, a batch is settled without
UNENDED = ("lease_expired", "worker_lost", "timeout")


class StepHandlers:
    """What an application's workers do with its remote batches."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._settings = app.settings.of(BatchSettings)
        self._passes = app.of(Passes)

    def of(self, kind: str) -> Callable[[Bulk], Awaitable[None]]:
        """Returns the handler of a kind."""
        if kind == LATE:
            return partial(self._ask, look_at_late_job)
        if kind == RECONCILE:
            return partial(self._ask, reconcile_page)
        step: tuple[BatchState, Step, str] = {
            DISPATCH: (BatchState.QUEUED, self._dispatch, "dispatched"),
            SETTLE: (BatchState.PROCESSING, self._settle, "settled"),
            RELEASE: (BatchState.PROCESSING, self._release, "released"),
        }[kind]
        return partial(self._each, *step)

    async def _ask(self, ask: Ask, bulk: Bulk) -> None:
        """Asks providers what became of jobs whose items have ended without them."""
        for item in bulk:
            try:
                store = await self._app.at(item.context.connection).store()
                item.answer(await ask(self._app, store, item.payload, item.context.state))
            except Exception as error:
                item.answer(error)

    async def _each(self, state: BatchState, step: Step, done: str, bulk: Bulk) -> None:
        """Takes the step with each batch that is in this state and round; what is further already is done. What goes
        wrong with one is its own trouble. ``done``: what a bounded pass counts it as."""
        for item in bulk:
            try:
                store = await self._app.at(item.context.connection).store()
                fits, answer = await _taken(store, item.payload, state, step, item.context)
                item.answer(answer)
                own = self._passes.of(item.context.worker_id)
                if own is not None and fits and not isinstance(answer, Snooze):
                    setattr(own, done, getattr(own, done) + 1)
            except BatchUnknown:
                item.answer(None)  # its row is gone by retention or by hand: there is nothing to do
            except Exception as error:
                item.answer(error)

    async def _dispatch(self, store: Store, batch: RemoteBatch, context: Context) -> dict[str, Any]:
        """Freezes the money of a batch and begins it; one whose account has too little fails."""
        short = await self._too_little(store, batch)
        if short is None:
            try:
                await store.apply(commits.dispatch(batch, self._settings.max_start))
                return {"state": BatchState.PROCESSING}
            except InvalidInput:  # perhaps somebody else spent it in between
                short = await self._too_little(store, batch)
                if short is None:
                    raise
        await store.apply(commits.fail_unpaid(batch, short))
        return {"state": BatchState.FAILED}

    async def _too_little(self, store: Store, batch: RemoteBatch) -> int | None:
        """Returns what the account of a batch has where that is less than it needs."""
        if batch.account is None or not batch.price or batch.frozen:
            return None
        has = await store.sql.balance(available(batch.account))
        return has if has < batch.price_of(batch.in_round) else None

    async def _settle(self, store: Store, batch: RemoteBatch, context: Context) -> Any:
        """Settles a batch whose items have ended, whoever asks for it: money is not settled on somebody's word."""
        (left,) = await store.sql.feature_rows(FEATURE, "remote_unended", str(batch.id))
        if left["join_open"]:
            return {"state": batch.state, "waits": left["n"]}  # the end of the last item brings another settlement
        if left["alive"]:
            return Snooze(AGAIN_S)
        if await _may_look(store, context):
            bound = self._settings.last_look_seconds
            waits = await last_look(self._app, store, batch, left["n"], context.state, bound)
            if waits is not None:
                return waits
        counts = await count_items(store, batch)
        await store.apply(commits.settle(batch, counts))
        return {state.value: n for state, n in counts.states.items()}

    async def _release(self, store: Store, batch: RemoteBatch, context: Context) -> dict[str, Any]:
        """Gives back the price of cancelled items whose turn never came."""
        # Also behind an open circuit, where their handler does not come to it.
        await cancel_unwanted(store, lambda: False, batch.id)
        counts = await count_items(store, batch)
        if counts.unreleased:
            await store.apply(commits.release(batch, counts.unreleased))
        return {"released": counts.unreleased}


async def _may_look(store: Store, context: Context) -> bool:
    """Returns whether a settlement asks the provider once more. An attempt that failed says nothing against it."""
    if context.task.attempt <= LOOKS:
        return True
    found = await store.timeline(context.task.id, documents=0)
    return found is None or sum(one.reason in UNENDED for one in found.attempts) < LOOKS


async def _taken(
    store: Store, payload: dict[str, Any], state: BatchState, step: Step, context: Context
) -> tuple[bool, Any]:
    """Takes a step with a batch as it is; where somebody else has moved it meanwhile, with what it is then. Returns
    whether it was in this state and round, and what came of it."""
    for left in reversed(range(TRIES)):
        batch = await find_remote(store, payload["batch"])
        if batch.round != payload["round"] or batch.state is not state:
            return False, {"state": batch.state}
        try:
            return True, await step(store, batch, context)
        except RedriveError as error:
            # What refuses it may be anything: the books come before the row that has another version.
            if (await find_remote(store, batch.id)).version == batch.version:
                raise
            if not left:
                told = f"batch {batch.id} was changed by somebody else {TRIES} times in a row"
                raise ChangedMeanwhile(told, hint="it is tried again by itself") from error
    raise AssertionError("unreachable")
