"""Checks the options of a worker in an application's own process: those of ``redrive work``, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from redrive.errors import InvalidInput
from redrive.kernel.task import check_name
from redrive.settings import Options, Settings, Unfit


class WorkerOptions(TypedDict, total=False):
    """The options of ``App.worker``; those that are left out, or None, are as for ``redrive work``."""

    queues: Iterable[str] | str | None
    concurrency: int | None
    sleep: float | None
    tries: int | None
    timeout: float | None
    max_time: float | None
    max_jobs: int | None
    max_memory: float | None
    once: bool
    stop_when_empty: bool


def make_options(given: WorkerOptions, queues: Sequence[str], settings: Settings) -> Options:
    """Returns the options as given, else as in the settings; without queues, all of ``queues``."""
    _refuse_unknown(given)
    try:
        return checked_options({**given, "queues": _names(given.get("queues"))}, queues, settings)
    except Unfit as error:
        problems = "; ".join(f"{p.place[0]}={p.value!r}: {p.message}" for p in error.problems)
        raise InvalidInput(f"these worker options cannot be used: {problems}") from None


def checked_options(given: Mapping[str, Any], queues: Sequence[str], settings: Settings) -> Options:
    """Returns the same, or raises Unfit: whoever asked says it in the words that were used."""
    chosen = tuple(check_name(name, "queue") for name in dict.fromkeys(given.get("queues") or queues))
    values = {name: value for name, value in given.items() if value is not None}
    return Options(**{"concurrency": settings.concurrency, "sleep": settings.interval, **values, "queues": chosen})


def _names(queues: Iterable[str] | str | None) -> tuple[str, ...]:
    """Returns queue names, the first to be drained first. A text has commas between, as on the command line."""
    if queues is None:
        return ()
    names = [part.strip() for part in queues.split(",")] if isinstance(queues, str) else queues
    chosen = tuple(names)
    if not chosen:
        raise InvalidInput("queues= names no queue", hint="leave it out to take all queues of the application")
    return chosen


def _refuse_unknown(given: WorkerOptions) -> None:
    known = WorkerOptions.__annotations__
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"options are: {', '.join(known)}"
            raise InvalidInput(f"there is no worker option {name!r}", hint=hint)
