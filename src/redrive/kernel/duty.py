"""Duties: what the fleet does besides running tasks, each by one worker at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store


@dataclass(slots=True, frozen=True)
class Duty:
    """Work that one worker of the fleet does every so many seconds. ``run`` gets the store, the worker's id, and a
    function that says whether the worker is stopping."""

    name: str
    # None: the store hands it out when there is something to do, to whoever asks.
    every: float | None
    run: Callable[[Store, str, Callable[[], bool]], Awaitable[None]]
    # Returns what could bring tasks this moment, as a value that changes when something has moved; false when nothing
    # could. Called by a worker that would stop because there is nothing to do.
    has_work: Callable[[Store, str], Awaitable[object]] | None = None
    # Collection and state of a document: the duty is not given out while there is none.
    while_record: tuple[str, str] | None = None
    # It moves tasks whose time has come, or is over: on the clock of a test it is done whenever that has moved.
    by_time: bool = False
