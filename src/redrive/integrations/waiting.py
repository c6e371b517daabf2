"""The border between blocking and asynchronous connections."""

from __future__ import annotations

import asyncio


async def before_the_first_statement() -> None:
    """Wait once, before anything is sent.

    ``app.sync`` finds out that a connection is asynchronous by the first wait, and gives up there: nothing may be
    half done on the caller's connection by then.
    """
    await asyncio.sleep(0)
