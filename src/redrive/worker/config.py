"""What a worker was told: its name, its settings and options, and the time limits that follow from them."""

from __future__ import annotations

import difflib
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypedDict

from redrive.errors import InvalidInput
from redrive.handlers.functions import body_of
from redrive.handlers.registry import Handler, Registry
from redrive.kernel.frames import package_of
from redrive.kernel.task import check_name
from redrive.kernel.wording import clean
from redrive.settings import DEFAULT_CONNECTION, Options, Settings, Unfit

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing


MAX_BUILD = 200


@dataclass(slots=True, frozen=True)
class WorkerConfig:
    """Under which name a worker runs which handlers, by which settings and options. ``where``: its store, as the log
    calls it; ``connection``: the name of that. ``tracing``: None where nothing is traced."""

    id: str
    registry: Registry
    settings: Settings
    options: Options
    where: str = "its store"
    connection: str = DEFAULT_CONNECTION
    tracing: Tracing | None = None


def build_of(settings: Settings, registry: Registry) -> str | None:
    """Returns which build of the application this is: as the settings say, else the version of the package that its
    handlers are in; None for a script without one."""
    if settings.build is not None:
        return settings.build
    modules = (getattr(body_of(handler.function), "__module__", None) for handler in registry.handlers.values())
    for package in dict.fromkeys(package_of(module) for module in modules):
        if package is not None and (found := _version(package)) is not None:
            return found
    return None


def _version(package: str) -> str | None:
    own = getattr(sys.modules.get(package), "__version__", None)
    try:
        found = own if isinstance(own, str) and own else version(package)
    except PackageNotFoundError:
        return None
    return clean(found)[:MAX_BUILD] or None


def worker_id(settings: Settings) -> str:
    """Returns the name that the settings give, else one that no other process has."""
    return settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


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


class TimeLimits:
    """Finds the time limit of an attempt, in seconds: as the task says, else its kind, else the worker."""

    def __init__(self, config: WorkerConfig) -> None:
        default, own = config.settings.timeout_ms / 1000, config.options.timeout
        self._handlers = config.registry.handlers
        self._default = (default if own is None else own) or None

    def of_kind(self, kind: str, own: float | None) -> float | None:
        """Returns the limit of a task of this kind; ``own`` is what the task says."""
        return self.of(self._handlers.get(kind), own)

    def of(self, handler: Handler | None, own: float | None) -> float | None:
        """Returns the limit in seconds; None: as long as it takes."""
        if own is not None:
            return own
        if handler is not None and handler.timeout is not None:
            return handler.timeout
        return self._default
