"""Declares the kinds of batches: the end of an inner batch, the steps of a remote one, and items of each provider of
the application. Every process does; what they do is imported when they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from redrive.batches.names import (
    DISPATCH,
    DISPATCH_QUEUE,
    FEATURE,
    ITEM_ATTEMPTS,
    LATE,
    QUEUE,
    RECONCILE,
    RELEASE,
    SETTLE,
    SETTLE_QUEUE,
    STEP_ATTEMPTS,
    item_kind,
)
from redrive.batches.settings import BatchSettings
from redrive.handlers.bulk import Bulk
from redrive.handlers.context import Context
from redrive.handlers.kinds import Kinds
from redrive.kernel.circuit import Circuit

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.batches.remote.item_handler import ItemHandler

kinds = Kinds()
_HERE = "redrive.batches.remote"
# Imported by a worker before it claims: what the steps, the duties of the feature, and items do.
STEPS = (
    f"{_HERE}.step_handlers",
    f"{_HERE}.in_flight",
    f"{_HERE}.upkeep",
    "redrive.batches.batch_builder",
    "redrive.batches.doctor",
)
ITEMS = (f"{_HERE}.item_handler", f"{_HERE}.callbacks")
CALLS_BESIDE = 3  # starts, cancels and something to spare: those of all items go out together


@kinds.task("BATCHES_ENDED", history=None)
async def ended(ctx: Context, batch: str) -> None:
    """Does nothing: its completion is the arrival of an inner batch that has no on_complete of its own."""


def declare(app: App) -> None:
    """Registers the steps, in sizes that the settings say."""
    own = app.settings.of(BatchSettings)
    for kind, queue, size in (
        (DISPATCH, DISPATCH_QUEUE, own.max_claim),
        (SETTLE, SETTLE_QUEUE, own.max_settle),
        (RELEASE, SETTLE_QUEUE, own.max_settle),
        (LATE, SETTLE_QUEUE, own.max_settle),
        (RECONCILE, SETTLE_QUEUE, 1),
    ):
        options = {
            "queue": queue,
            "bulk": size,
            "max_attempts": STEP_ATTEMPTS,
            "public": ("batch", "round"),
            "preload": STEPS,
        }
        app.register_for(FEATURE, kind, _step(app, kind), options)


def declare_provider(app: App, provider: str) -> None:
    """Registers the kind of items of a provider."""
    size = app.settings.of(BatchSettings).max_poll
    known = app.settings.providers.get(provider)
    call = app.settings.provider_call_seconds if known is None else known.timeout
    options = {
        "queue": QUEUE,
        "timeout": CALLS_BESIDE * call + size * call,  # polls may go out one by one, each with a limit of its own
        "bulk": size,
        "max_attempts": ITEM_ATTEMPTS,
        "public": ("batch", "round", "ordinal"),
        "circuit": Circuit(name=provider),
        "preload": ITEMS,
    }
    app.register_for(FEATURE, item_kind(provider), _items(app, provider), options)


def _step(app: App, kind: str) -> Callable[[Bulk], Awaitable[None]]:
    async def step(bulk: Bulk) -> None:
        from redrive.batches.remote.step_handlers import StepHandlers

        steps = app.of(StepHandlers)
        await steps.of(kind)(bulk)

    return step


def _items(app: App, provider: str) -> Callable[[Bulk], Awaitable[None]]:
    made: list[ItemHandler] = []

    async def items(bulk: Bulk) -> None:
        if not made:
            from redrive.batches.remote.item_handler import ItemHandler

            made.append(ItemHandler(app, provider))
        await made[0].run(bulk)

    return items
