"""One run: which measurements, in which order, and the results as one dictionary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from bench.environment import version
from bench.measure import (
    Bench,
    batched,
    drain,
    enqueue,
    floor,
    growth,
    horizon,
    idle,
    not_measured,
    operating,
    outbox,
    pickup,
    remote,
    scraped,
)
from bench.peers import MODULES, NotInstalled, Peer, load

Results = dict[str, Any]
POSTGRES, SQLITE = "redrive-postgres", "redrive-sqlite"
# Measured in turn with redrive, several times: whom the targets name, and who might turn out to be the fastest.
RIVALS = {POSTGRES: ("pgqueuer", "awa"), SQLITE: ("huey-sqlite",)}
NO_TIME = {"not_measured": "no time was left"}


class Run:
    def __init__(self, bench: Bench, sections: Collection[str], names: Collection[str]) -> None:
        self.bench = bench
        self.sections = sections
        self.results: Results = {
            "peers": {},
            "floor": {},
            "growth": {},
            "horizon": {},
            "statements": {},
            "operating": {},
            "operating_sqlite": {},
            "scraped": {},
            "batch": {},
            "remote": {},
            "outbox": {},
        }
        self.adapters: dict[str, type[Peer]] = {}
        for name in MODULES:
            if name in names:
                self._add(name)

    def _add(self, name: str) -> None:
        entry: Results = {"name": name, "drain": {}, "enqueue": {}}
        try:
            adapter = self.adapters[name] = load(name)
            entry |= {"backend": adapter.backend, "settings": adapter.settings, "version": version(adapter.package)}
        except NotInstalled as error:
            entry["not_measured"] = str(error)
        self.results["peers"][name] = entry

    async def everything(self) -> Results:
        """What the targets need comes first: where time is short, other peers are what is left out."""
        for own in (POSTGRES, SQLITE):
            await self.drains(self._with_rivals(own), (1, 2), self.bench.plan.repeats)
        await self.floors()
        await self.enqueues(self._with_rivals(POSTGRES), self.bench.plan.repeats)
        await self.pickups([POSTGRES, "pgqueuer", SQLITE])
        await self.idles()
        await self.horizons()
        await self.growths()
        await self.operations()
        await self.scrapes()
        await self.in_one_batch()
        await self.at_a_provider()
        await self.projected()
        others = [name for name in self.adapters if name not in self.results_of("drain")]
        for name in others:
            await self.drains([name], self.bench.plan.processes, 1)
        await self.pickups([name for name in self.adapters if name not in self.results_of("pickup")])
        for name in [name for name in self.adapters if name not in self.results_of("enqueue")]:
            await self.enqueues([name], 1)
        return self.results

    def results_of(self, section: str) -> list[str]:
        return [name for name, entry in self.results["peers"].items() if entry.get(section)]

    def _with_rivals(self, own: str) -> list[str]:
        rivals = RIVALS[own] if self.bench.plan.deadline is None else RIVALS[own][:1]
        return [name for name in (own, *rivals) if name in self.adapters]

    async def drains(self, names: list[str], processes: tuple[int, ...], repeats: int) -> None:
        if "drain" not in self.sections:
            return
        for count in processes:
            able = [self.adapters[name] for name in names if self.adapters[name].most_processes >= count]
            if self.bench.out_of_time():
                found = {adapter.name: NO_TIME for adapter in able}
            else:
                found = await drain.repeated(self.bench, able, count, repeats)
            for name, figures in found.items():
                self.results["peers"][name]["drain"][str(count)] = figures

    async def enqueues(self, names: list[str], repeats: int) -> None:
        if "enqueue" in self.sections and names and not self.bench.out_of_time():
            found = await enqueue.repeated(self.bench, [self.adapters[name] for name in names], repeats)
            for name, figures in found.items():
                self.results["peers"][name]["enqueue"] = figures

    async def pickups(self, names: list[str]) -> None:
        await self._each("pickup", names, lambda adapter: pickup.measure(self.bench, adapter))

    async def idles(self) -> None:
        await self._each("idle", [POSTGRES, SQLITE], lambda adapter: idle.measure(self.bench, adapter))
        if "idle" in self.sections and POSTGRES in self.adapters:
            own = self.adapters[POSTGRES]
            self.results["statements"] = await self._attempt(lambda: idle.statements_per_batch(self.bench, own))

    async def _each(self, section: str, names: list[str], measure: Callable[[type[Peer]], Awaitable[Results]]) -> None:
        for name in names if section in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results["peers"][name][section] = await self._attempt(lambda adapter=adapter: measure(adapter))

    async def floors(self) -> None:
        own = self.adapters.get(POSTGRES)
        if "floor" not in self.sections or own is None:
            return
        for statement, batch, clients in self.bench.plan.floors:
            self.results["floor"][f"{statement} {batch} x{clients}"] = await self._attempt(
                lambda statement=statement, batch=batch, clients=clients: floor.measure(
                    self.bench, own, statement, batch, clients
                )
            )

    async def growths(self) -> None:
        names = (POSTGRES, SQLITE) if self.bench.plan.deadline is None else (POSTGRES,)
        for name in names if "growth" in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results["growth"][name] = await growth.measure(self.bench, adapter)

    async def operations(self) -> None:
        names = {POSTGRES: "operating"} | ({SQLITE: "operating_sqlite"} if self.bench.plan.deadline is None else {})
        for name, place in names.items() if "operating" in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results[place] = await self._attempt(
                    lambda adapter=adapter: operating.measure(self.bench, adapter), needed=15
                )

    async def scrapes(self) -> None:
        own = self.adapters.get(POSTGRES)
        if "scraped" in self.sections and own is not None:
            self.results["scraped"] = await self._attempt(lambda: scraped.measure(self.bench, own), needed=40)

    async def in_one_batch(self) -> None:
        for name in (POSTGRES, SQLITE) if "batch" in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results["batch"][name] = await self._attempt(
                    lambda adapter=adapter: batched.measure(self.bench, adapter), needed=20
                )

    async def at_a_provider(self) -> None:
        for name in (POSTGRES, SQLITE) if "remote" in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results["remote"][name] = await self._attempt(
                    lambda adapter=adapter: remote.measure(self.bench, adapter), needed=30
                )

    async def projected(self) -> None:
        if "outbox" in self.sections and POSTGRES in self.adapters:
            self.results["outbox"] = await self._attempt(lambda: outbox.measure(self.bench), needed=60)

    async def horizons(self) -> None:
        names = (POSTGRES, "pgqueuer") if self.bench.plan.deadline is None else (POSTGRES,)
        for name in names if "horizon" in self.sections else ():
            if (adapter := self.adapters.get(name)) is not None:
                self.results["horizon"][name] = await self._attempt(
                    lambda adapter=adapter: horizon.measure(self.bench, adapter),
                    needed=self.bench.plan.clean_seconds + self.bench.plan.pinned_seconds + 10,
                )

    async def _attempt(self, measure: Callable[[], Awaitable[Results]], needed: float = 8.0) -> Results:
        """One measurement that breaks must not end the run."""
        if self.bench.out_of_time(needed):
            return NO_TIME
        try:
            return await measure()
        except Exception as error:
            return not_measured(error)
