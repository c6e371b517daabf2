"""Circuits: list, open, close, try now."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from redrive.errors import ChangedMeanwhile, NotFound
from redrive.kernel.audit import Audit
from redrive.kernel.circuit import Circuit, CircuitRow, CircuitState, SetCircuit, close, probe_now, trip
from redrive.kernel.commit import Commit
from redrive.kernel.task import State, check_name, check_text
from redrive.ops.access import Role
from redrive.ops.circuits import told
from redrive.ops.operator.session import Service

MOST_TRIES = 3  # when workers change it at the same time
OPENED_BY_HAND = Circuit()  # its first probe; further ones come as the kind says


@dataclass(slots=True, frozen=True)
class CircuitView:
    """A circuit at a moment, in words too, and how many tasks of its kinds are queued."""

    row: CircuitRow
    now: datetime
    queued: int

    @property
    def state(self) -> CircuitState:
        return self.row.state(self.now)

    @property
    def told(self) -> str:
        return told(self.row, self.now)


@dataclass(slots=True, frozen=True)
class Turned:
    """A circuit after an action; ``changed`` is False where it was so already."""

    circuit: CircuitView
    changed: bool


class CircuitService(Service):
    async def list(self) -> builtins.list[CircuitView]:
        """Returns every circuit that workers have declared, the open ones first."""
        self._session.may(Role.VIEWER)
        rows, now = await self._store.circuits(), await self._store.now()
        queued = Counter[str]()
        for one in await self._store.counts() if rows else ():
            queued[one.kind] += one.n if one.state is State.QUEUED else 0
        views = [CircuitView(row, now, sum(queued[kind] for kind in row.kinds)) for row in rows]
        return sorted(views, key=lambda one: (not one.row.open, one.row.name))

    async def show(self, name: str) -> CircuitView:
        """Returns one of them."""
        found = await self.list()
        for one in found:
            if one.row.name == check_name(name, "circuit"):
                return one
        listed = ", ".join(one.row.name for one in found) or "none yet: workers declare those of their kinds"
        raise NotFound(f"there is no circuit {name!r}", hint=f"circuits: {listed}")

    async def open(self, name: str, reason: str | None = None) -> Turned:
        """Has the tasks of its kinds wait, as if the other side were down; a probe comes soon, and closes it again if
        it gets through. To stop a kind for good, pause it."""

        def opened(row: CircuitRow, who: str) -> SetCircuit | None:
            return None if row.open else trip(row, OPENED_BY_HAND, row.kinds, f"opened by {who}", who, 0.5)

        return await self._turn(name, "CIRCUIT_OPEN", reason, opened)

    async def close(self, name: str, reason: str | None = None) -> Turned:
        """Lets the tasks of its kinds run at once; it opens again if the other side is still down."""

        def closed(row: CircuitRow, who: str) -> SetCircuit | None:
            return close(row, f"closed by {who}", who) if row.open else None

        return await self._turn(name, "CIRCUIT_CLOSE", reason, closed)

    async def probe(self, name: str, reason: str | None = None) -> Turned:
        """Lets the next probe start now."""

        def probed(row: CircuitRow, who: str) -> SetCircuit | None:
            return probe_now(row) if row.open else None

        return await self._turn(name, "CIRCUIT_PROBE", reason, probed)

    async def _turn(
        self, name: str, action: str, reason: str | None, change: Callable[[CircuitRow, str], SetCircuit | None]
    ) -> Turned:
        who, why = self._session.may(Role.OPERATOR), check_text(reason, "reason")
        for left in range(MOST_TRIES, 0, -1):
            seen = await self.show(name)
            new = change(seen.row, who)
            if new is None:
                return Turned(seen, False)
            before, after = {"open": seen.row.open}, {"open": new.open}
            row = Audit(who, action, why, target=f"circuit:{name}", before=before, after=after)
            try:
                await self._store.apply(Commit(controls=[new], audits=[row]))
            except ChangedMeanwhile:
                if left == 1:
                    raise
                continue
            return Turned(await self.show(name), True)
        raise AssertionError("unreachable")
