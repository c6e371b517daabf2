"""One experiment under way: what it says, what it finds, what it expects, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redrive.kernel.alerts.thresholds import Thresholds
from redrive_kit.labs.facts import GAUGES, Facts
from redrive_kit.labs.processes import poll
from redrive_kit.labs.world import World

PATIENCE_S = 120.0  # for what happens soon on any machine, however busy
LOOK_EVERY_S = 0.1


@dataclass(slots=True, frozen=True)
class Expectation:
    """What must be seen, whether it was, and what was seen."""

    what: str
    holds: bool
    seen: str


class Unmet(Exception):
    """What the rest of an experiment needs was not seen."""


Look = Callable[[Facts], Any]


@dataclass(slots=True)
class LabRun:
    """The run of an experiment. ``parameters`` are those of the table, as they are used here."""

    number: int
    title: str
    parameters: Mapping[str, str]
    world: World
    say: Callable[[str], None]
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    facts: list[Facts] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # of logs, as they were found
    expectations: list[Expectation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    broken: str | None = None  # an error that ended it
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.broken is None and bool(self.expectations) and all(one.holds for one in self.expectations)

    @property
    def conclusion(self) -> str:
        """Returns what came out in a line: all was seen, or what was not."""
        missing = [f"{one.what} (seen: {one.seen})" for one in self.expectations if not one.holds]
        missing += [] if self.broken is None else [self.broken]
        if self.ok:
            return f"all {len(self.expectations)} expectations were met"
        return "not as expected: " + ("; ".join(missing) or "nothing was expected")

    def note(self, text: str) -> None:
        """Says what happens."""
        self.notes.append(text)
        self.say(f"  · {text}")

    async def look(self, when: str, *, quietly: bool = False) -> Facts:
        """Takes facts, with the metrics of the worker that is alive, for the record."""
        found = await self.world.facts(when)
        if not quietly:
            self.keep(found)
        return found

    def keep(self, found: Facts) -> None:
        """Puts facts into the record."""
        self.facts.append(found)
        self.say(f"  {found.when}: {found.words()}")
        if found.metrics:
            self.say(f"    {found.measured()}")

    def log(self, line: Mapping[str, Any]) -> None:
        """Keeps a line of a log for the record."""
        self.lines.append(" ".join(f"{name}={value}" for name, value in line.items()))
        self.say(f"  log: {self.lines[-1]}")

    def expect(self, what: str, holds: Any, seen: Any = "") -> None:
        """Asserts something; the experiment goes on."""
        self.expectations.append(Expectation(what, bool(holds), str(seen)))
        mark = "seen" if holds else "NOT SEEN"
        self.say(f"  {mark}: {what}" + (f" ({seen})" if str(seen) else ""))

    def insist(self, what: str, holds: Any, seen: Any = "") -> None:
        """Asserts something without which the rest makes no sense."""
        self.expect(what, holds, seen)
        if not holds:
            raise Unmet(what)

    async def until(
        self,
        what: str,
        when: str,
        look: Look,
        patience: float = PATIENCE_S,
        *,
        gauges: Collection[str] = tuple(GAUGES),
    ) -> Facts:
        """Looks at facts until they are so, and keeps those; asserts that this came. ``gauges``: those of the worker
        that have to say so, too, so that no record contradicts itself; fewer while events move on."""
        give_up = time.monotonic() + patience
        while True:
            found = await self.look(when, quietly=True)
            if look(found) and found.is_measured(gauges):
                self.keep(found)
                self.expect(what, True, found.words())
                return found
            if time.monotonic() > give_up:
                self.keep(found)
                self.insist(what, False, f"after {patience:g} s: {found.words()}; {found.measured()}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def wait_for(
        self, what: str, check: Callable[[], Awaitable[Any]], patience: float = PATIENCE_S, *, asserts: bool = True
    ) -> Any:
        """Looks until something is there, and returns it; asserts that it came."""
        found = await poll(check, patience, LOOK_EVERY_S)
        if asserts or not found:
            self.insist(what, found, "" if found else f"not within {patience:g} s")
        return found

    async def same_as_source(self) -> None:
        """Asserts that the sink has what was published, by id and version."""
        found, source = await self.world.sink.versions(), self.world.source
        different = sorted(key for key in found.keys() | source.keys() if found.get(key) != source.get(key))
        seen = f"{len(source)} documents" if not different else f"{len(different)} differ: {', '.join(different[:5])}"
        self.expect("the sink has what the source has, by id and version", not different, seen)


@dataclass(slots=True, frozen=True)
class Experiment:
    """``full`` and ``quick`` are settings of the outbox by variable; ``seconds`` and ``quick_seconds`` how long what is
    broken stays so. ``thresholds``: from when on alerts fire for its queue."""

    number: int
    title: str
    about: str  # what must be seen, in a line
    run: Callable[[LabRun, float], Awaitable[None]]
    full: Mapping[str, str] = field(default_factory=dict)
    quick: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    quick_seconds: float = 0.0
    thresholds: Thresholds | None = None

    @property
    def name(self) -> str:
        """Its projection, and the queue below ``outbox:``."""
        return f"lab{self.number}"


@dataclass(slots=True, frozen=True)
class LabOptions:
    """What the command line says. ``url``: a store that is there; None makes a fresh one each."""

    url: str | None
    sink: str | None
    quick: bool
    by: str
    report: Path
    say: Callable[[str], None]
