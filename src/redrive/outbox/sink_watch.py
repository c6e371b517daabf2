"""Knows whether a sink can be reached from here, for whoever looks at its projection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from redrive.errors import RedriveError
from redrive.outbox.sink import Sink

FRESH_S = 5.0  # however many look, it is asked this often
LONGEST_S = 5.0
PATIENCE_S = 0.5  # a page is not kept waiting by a sink that does not answer


@dataclass(slots=True, frozen=True)
class Reached:
    """Whether a sink answered; None while nobody knows. ``detail`` says what is wrong, without what an error quotes:
    that may be a password."""

    ok: bool | None = None
    detail: str | None = None

    @property
    def word(self) -> str:
        return {None: "unknown", True: "reachable", False: "not reachable"}[self.ok]


class SinkWatch:
    """Asks a sink now and then; in between the last answer is told."""

    def __init__(self, sink: Callable[[], Sink]) -> None:
        self._sink = sink
        self._last = Reached()
        self._at = float("-inf")
        self.reached_at: datetime | None = None  # when it last was well
        self._asking: asyncio.Task[None] | None = None

    async def look(self, patience: float = PATIENCE_S) -> Reached:
        """Returns whether the sink can be reached, as of a few seconds ago. One that does not answer at once is told of
        by the next look."""
        if time.monotonic() - self._at >= FRESH_S:
            await asyncio.wait([self._ask()], timeout=patience)
        return self._last

    def _ask(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not loop:
            self._asking = loop.create_task(self._check())
        return self._asking

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._sink().check()
            self._last, self.reached_at = Reached(True), datetime.now(UTC)
        except TimeoutError:
            self._last = Reached(False, f"no answer within {LONGEST_S:.0f} s")
        except RedriveError as error:  # our own words: a client that is not installed, for instance
            self._last = Reached(False, error.message)
        except Exception as error:  # whatever it is: nothing can be written there now
            self._last = Reached(False, type(error).__name__)
        self._at = time.monotonic()
