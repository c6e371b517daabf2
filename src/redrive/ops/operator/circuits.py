"""Circuits: list, show, open, close, try now."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

from redrive.errors import ChangedMeanwhile, NotFound
from redrive.kernel.audit import Audit
from redrive.kernel.circuit import Circuit, CircuitRow, CircuitState, SetCircuit, close, probe_now, trip
from redrive.kernel.commit import Commit
from redrive.kernel.task import State, check_name
from redrive.kernel.wording import span
from redrive.ops.circuits import describe, next_probe
from redrive.ops.operator.declared import Given, Open, Reason, action, look, view_of
from redrive.ops.operator.session import Service

MOST_TRIES = 3  # when workers change it at the same time
OPENED_BY_HAND = Circuit()  # its first probe; further ones come as the kind says
NO_CIRCUIT = "no kind has a circuit: @app.task(…, circuit=True) gives it one"
Name = Annotated[str, Given("The circuit.", metavar="NAME", check=partial(check_name, what="circuit"))]


def _age(one: CircuitView, now: datetime) -> str:
    return span(now - one.since)


@dataclass(slots=True, frozen=True)
class CircuitView:
    """A circuit at a moment."""

    name: Annotated[str, Open(column="circuit")]
    state: Annotated[
        CircuitState, Open("closed, open, or half_open: a probe runs, or the next task is one.", column="state")
    ]
    open: Annotated[bool, Open("Whether tasks of its kinds wait.")]
    told: Annotated[str, Open("The state in a sentence.")]
    since: Annotated[datetime, Open("Open or closed.", column="since", cell=_age)]
    kinds: Annotated[tuple[str, ...], Open(column="kinds")]
    queued: Annotated[int, Open("Tasks of its kinds that are queued.", column="queued")]
    until: Annotated[datetime | None, Open("When the next probe may start.")]
    next_probe: Annotated[str | None, Open("The same in words.", column="next probe")]
    reason: Annotated[str | None, Open("Why it opened, or why the last probe failed.", column="why")]
    actor: Annotated[str | None, Open("The worker or person that opened or closed it.")]
    failed_probes: Annotated[int, Open()]
    opened: Annotated[int, Open("How many times.")]
    probe: Annotated[UUID | None, Open("The task that was let through last.")]


@dataclass(slots=True, frozen=True)
class CircuitChange:
    """A circuit after an action; ``changed`` is False where it was so already."""

    circuit: Annotated[CircuitView, Open()]
    changed: Annotated[bool, Open()]


class CircuitService(Service):
    """Circuits: list them, open, close or probe one."""

    @look("GET /api/circuits", empty=NO_CIRCUIT)
    async def list(self) -> builtins.list[CircuitView]:
        """Circuits of kinds, the open ones first: since when, why, and when the next probe comes. While one is open,
        tasks of its kinds wait and use no attempts."""
        return await self._views(await self._store.circuits())

    @look("GET /api/circuits/{name}")
    async def show(self, name: Name) -> CircuitView:
        """One circuit."""
        [found] = await self._views([await self._row(name)])
        return found

    @action("POST /api/circuits/{name}/open", said="circuit {name} is {done.circuit.told}")
    async def open(self, name: Name, reason: Reason = None) -> CircuitChange:
        """Have tasks of its kinds wait, as if the other side were down. A probe comes soon, and closes it if it gets
        through; to stop a kind for good: redrive pause --kind NAME."""

        def opened(row: CircuitRow) -> SetCircuit | None:
            return None if row.open else trip(row, OPENED_BY_HAND, row.kinds, f"opened by {self._who}", self._who, 0.5)

        return await self._turn(name, "CIRCUIT_OPEN", reason, opened)

    @action("POST /api/circuits/{name}/close", said="circuit {name} is {done.circuit.told}")
    async def close(self, name: Name, reason: Reason = None) -> CircuitChange:
        """Let tasks of its kinds run at once. It opens again if the other side is still down."""

        def closed(row: CircuitRow) -> SetCircuit | None:
            return close(row, f"closed by {self._who}", self._who) if row.open else None

        return await self._turn(name, "CIRCUIT_CLOSE", reason, closed)

    @action("POST /api/circuits/{name}/probe", said="circuit {name} is {done.circuit.told}")
    async def probe(self, name: Name, reason: Reason = None) -> CircuitChange:
        """Let the next probe of an open circuit start now."""

        def probed(row: CircuitRow) -> SetCircuit | None:
            return probe_now(row) if row.open else None

        return await self._turn(name, "CIRCUIT_PROBE", reason, probed)

    async def _turn(
        self, name: str, audited: str, reason: str | None, change: Callable[[CircuitRow], SetCircuit | None]
    ) -> CircuitChange:
        for left in range(MOST_TRIES, 0, -1):
            row = await self._row(name)
            new = change(row)
            if new is None:
                return CircuitChange(await self.show(name), False)
            before, after = {"open": row.open}, {"open": new.open}
            note = Audit(self._who, audited, reason, target=f"circuit:{name}", before=before, after=after)
            try:
                await self._store.apply(Commit(controls=[new], audits=[note]))
            except ChangedMeanwhile:
                if left == 1:
                    raise
                continue
            return CircuitChange(await self.show(name), True)
        raise AssertionError("unreachable")

    async def _row(self, name: str) -> CircuitRow:
        rows = {row.name: row for row in await self._store.circuits()}
        if name in rows:
            return rows[name]
        listed = ", ".join(sorted(rows)) or "none yet: workers declare those of their kinds"
        raise NotFound(f"there is no circuit {name!r}", hint=f"circuits: {listed}")

    async def _views(self, rows: Sequence[CircuitRow]) -> builtins.list[CircuitView]:
        now, queued = await self._store.now(), Counter[str]()
        for one in await self._store.counts() if rows else ():
            queued[one.kind] += one.n if one.state is State.QUEUED else 0
        found = [
            view_of(
                CircuitView,
                row,
                state=row.state(now),
                told=describe(row, now),
                next_probe=next_probe(row, now) if row.open else None,
                queued=sum(queued[kind] for kind in row.kinds),
            )
            for row in rows
        ]
        return sorted(found, key=lambda one: (not one.open, one.name))
