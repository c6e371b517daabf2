"""The kind by which the end of an inner batch counts in its outer one."""

from __future__ import annotations

from redrive.handlers.context import Context
from redrive.handlers.kinds import Kinds

kinds = Kinds()


@kinds.task("BATCHES_ENDED", history=None)
async def ended(ctx: Context, batch: str) -> None:
    """Does nothing: its completion is the arrival of an inner batch that has no on_complete of its own."""
