"""Runs coroutines on the worker's loop without an ``asyncio.Task`` for each.

Making a task, scheduling it and hearing of its end costs more than most small handlers do. A carrier is a task that
runs one attempt after the other for as long as they do not have to wait. When one has to, the carrier is that
attempt's own task from then on, and the next carrier goes on with the rest. So what waits is alone in its task from
then on (its cancellation, its time-outs), what never waits costs no task at all, and each has a context of its own.

The price: a handler that keeps its task (``asyncio.current_task()``), returns without ever having waited, and cancels
that task later, hits whoever runs in it by then.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from redrive.worker.forks import Home, confined
from redrive.worker.run import Run

# How long one carrier may run on before others get their turn: the lease keeper, and the store's answers, which have
# nothing to do until the next call is sent.
LONGEST_STRETCH_S = 0.003


class Carriers:
    """Runs ``attempt(run)`` for each run that was added, in order; calls ``broken`` when one raises."""

    def __init__(
        self, attempt: Callable[[Run], Coroutine[Any, Any, None]], broken: Callable[[Run, BaseException], None]
    ) -> None:
        self._attempt = attempt
        self._broken = broken
        self._home = Home()
        self._waiting: deque[Run] = deque()
        self._next: asyncio.Task[None] | None = None

    def add(self, run: Run) -> None:
        self._waiting.append(run)
        if self._next is None:
            self._call_next()

    def _call_next(self) -> None:
        self._next = asyncio.get_running_loop().create_task(self._carry())
        self._next.add_done_callback(self._ended)

    def _ended(self, carrier: asyncio.Task[None]) -> None:
        if self._next is carrier:  # cancelled before its turn, by somebody who cancels whatever he finds
            self._next = None
        if self._waiting and self._next is None:
            self._call_next()

    async def _carry(self) -> None:
        self._next = None
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        ends = loop.time() + LONGEST_STRETCH_S
        waited = False
        # Who has waited was succeeded meanwhile, and may have been cancelled.
        while self._waiting and not waited and not me.cancelling() and loop.time() < ends:
            run = self._waiting.popleft()
            if self._waiting and self._next is None:
                self._call_next()  # its turn comes when this one waits or ends
            run.future = me
            attempt = self._attempt(run)
            within: Callable[..., Any] = contextvars.copy_context().run  # a context of its own
            try:
                try:
                    waits_for = within(attempt.send, None)
                except StopIteration:  # most of them: whatever makes waiting possible is left out
                    continue
                finally:
                    self._home.end_if_forked()
                waited = True
                await confined(partial(within, attempt.send), partial(within, attempt.throw), self._home, waits_for)
            except BaseException as error:
                self._broken(run, error)
                raise
