"""Runs the causes, and measures how well fingerprints tell them apart."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from redrive.kernel.failure import Failure
from tests.failures.corpus.servers import Servers
from tests.failures.corpus.vary import Vary

VARIANTS = 12
HERE = Path(__file__).parent
_PACKAGES = ("shop", "clinic", "depot", "harbour")
Call = Callable[["Scene"], Any]


@dataclass(slots=True)
class Cause:
    """One cause, by the name that a person would give it, and what makes it happen."""

    name: str
    call: Call


class Scene:
    """One failure: its values, the servers, and the application at the line numbers of some deploy."""

    def __init__(self, cause: Cause, number: int, servers: Servers, postgres: str) -> None:
        self.v = Vary(cause.name, number)
        self.servers = servers
        self.postgres = postgres
        self.url = servers.url

    def __getattr__(self, name: str) -> ModuleType:
        """A module of the application, as ``shop_web`` for ``shop.web``."""
        return load(name, self.v.lines)


_LOADED: dict[tuple[str, int], ModuleType] = {}


def load(name: str, lines: int) -> ModuleType:
    """A module of the corpus with so many lines above it, as another deploy would have it."""
    if (name, lines) not in _LOADED:
        package, _, module = name.partition("_")
        path = HERE / package / f"{module}.py"
        spec = importlib.util.spec_from_file_location(f"{package}.{module}", path)
        assert spec is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[made.__name__] = made  # dataclasses and pydantic look themselves up
        exec(compile("\n" * lines + path.read_text(), str(path), "exec"), made.__dict__)
        _LOADED[name, lines] = made
    return _LOADED[name, lines]


def happen(cause: Cause, number: int, servers: Servers, postgres: str) -> Any:
    """What the application raised or gave back, called the way this variant calls it."""
    scene = Scene(cause, number, servers, postgres)
    match scene.v.how:
        case "thread":
            return _in_thread(lambda: cause.call(scene))
        case "loop":
            return asyncio.run(_looped(lambda: cause.call(scene)))
    return _said(lambda: cause.call(scene))


async def _looped(call: Callable[[], Any]) -> Any:
    # In a thread of the loop: what it calls may start a loop of its own.
    return await asyncio.to_thread(_said, call)


def _in_thread(call: Callable[[], Any]) -> Any:
    said: list[Any] = []
    thread = threading.Thread(target=lambda: said.append(_said(call)))
    thread.start()
    thread.join()
    return said[0]


def _said(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BaseException as error:
        error.__traceback__ = _from_application(error.__traceback__)
        return error


def _from_application(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of these tests: a worker calls the application's handler itself."""
    first = trace
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
            return trace
        trace = trace.tb_next
    return first


@dataclass(slots=True)
class Score:
    """Pairs of failures: put together rightly, and those that belong together that were."""

    precision: float
    recall: float
    mixed: list[tuple[str, ...]]
    split: dict[str, int]


def score(found: Iterable[tuple[str, str]]) -> Score:
    """``found``: cause and fingerprint of each failure."""
    pairs = Counter(found)
    by_cause, by_print = Counter[str](), Counter[str]()
    for (cause, fingerprint), n in pairs.items():
        by_cause[cause] += n
        by_print[fingerprint] += n
    right = sum(n * (n - 1) // 2 for n in pairs.values())
    together = sum(n * (n - 1) // 2 for n in by_print.values())
    belong = sum(n * (n - 1) // 2 for n in by_cause.values())
    causes: dict[str, set[str]] = {}
    prints = Counter(cause for cause, _ in pairs)
    for (cause, fingerprint), _ in pairs.items():
        causes.setdefault(fingerprint, set()).add(cause)
    return Score(
        right / together if together else 1.0,
        right / belong if belong else 1.0,
        sorted({tuple(sorted(names)) for names in causes.values() if len(names) > 1}),
        {cause: n for cause, n in prints.items() if n > 1},
    )


def failures(
    causes: Iterable[Cause], servers: Servers, postgres: str, failure_from: Callable[[Cause, Any], Failure]
) -> list[tuple[str, Failure]]:
    """Every variant of every cause, as a worker would store it."""
    return [
        (cause.name, failure_from(cause, happen(cause, number, servers, postgres)))
        for cause, number in itertools.product(causes, range(VARIANTS))
    ]
