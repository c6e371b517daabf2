"""The system's health: totals, findings, drills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from redrive.kernel.diagnosis import Finding
from redrive.kernel.records import Record
from redrive.kernel.task import Task
from redrive.ops import history, inspect
from redrive.ops.access import Role
from redrive.ops.alerts.messages import start_command
from redrive.ops.alerts.own_rules import more_rules
from redrive.ops.history import History, Rates
from redrive.ops.inspect import Stats
from redrive.ops.operator.declared import OfKind, OfQueue, Period, look
from redrive.ops.operator.session import Service
from redrive.settings import Triage

if TYPE_CHECKING:
    from redrive.ops import drill
    from redrive.ops.alerts.findings import Watched

MOST_DRILLS_LISTED = 50


class HealthService(Service):
    async def now(self) -> datetime:
        """Returns the time by the store's clock."""
        return await self._store.now()

    async def identity(self) -> str:
        """Returns what tells the store from all others, however its URL is written."""
        self._session.may(Role.VIEWER)
        return (await self._store.diagnose(brief=True)).identity

    async def stats(self) -> Stats:
        """Returns exact totals with pauses, limits and workers."""
        self._session.may(Role.VIEWER)
        return await inspect.stats(self._store)

    @look("GET /api/history")
    async def history(self, period: Period = "1h", queue: OfQueue = None, kind: OfKind = None) -> History:
        """How many tasks ended and how, how many waited, and how long, step by step: of everything, a queue, a kind, or
        a kind in a queue."""
        await self._session.check_names(queue, kind)
        return await history.history(self._store, period, queue, kind)

    async def rates(self) -> Rates:
        """Returns how many tasks of each kind and queue ended in each minute of the last hour."""
        self._session.may(Role.VIEWER)
        return await history.rates(self._store)

    async def oldest_kinds(self) -> dict[str, datetime]:
        """Returns since when the first task of each kind waits that could run; of kinds that are at the front of a
        queue."""
        self._session.may(Role.VIEWER)
        return (await self._store.figures()).oldest_kinds

    async def examine(self, queue: str | None = None) -> list[Finding]:
        """Returns what is wrong, the worst first, and what to do about it."""
        self._session.may(Role.VIEWER)
        session = self._session
        looks = {
            feature.name: partial(feature.examine, self._store, session.settings)
            for feature in session.features
            if feature.examine is not None
        }
        from redrive.ops import doctor  # looks at everything, and most commands at little

        found = await doctor.examine(self._store, queue, session.queues, looks, self._watched)
        return [replace(one, fix=session.command(self._fix(one))) for one in found]

    def _fix(self, finding: Finding) -> str | None:
        """Returns what mends something; the command that starts a worker as it is configured here."""
        what, name = finding.about or ("", "")
        if finding.code != "no_worker" or what != "queue" or self._session.policy.settings is None:
            return finding.fix
        return start_command(self._session.policy.settings, self._session.connection, name)

    @property
    def _watched(self) -> Watched:
        from redrive.ops.alerts.findings import Watched

        session, policy = self._session, self._session.policy
        notes = {name: note for name, note in policy.triage.items() if self._is_here(name)}
        if policy.settings is None:
            return Watched(policy.limits, {}, notes)
        own = more_rules(policy.settings, session.features, session.connection)
        return Watched(policy.limits, own, notes, policy.settings.slo)

    def _is_here(self, queue: str) -> bool:
        """Returns whether the notes on a queue are about this connection: the one that they name, else where tasks of
        the queue go."""
        session = self._session
        if session.policy.settings is None or len(session.connections) < 2:
            return True
        default, named = session.policy.settings.default_connection, session.policy.triage[queue].connection
        going = session.registry.connections_of("queue", queue, default)
        return session.connection in ({named} if named else going or {default})

    def triage(self, queue: str | None = None) -> dict[str, Triage]:
        """Returns the notes of those who know a queue about its troubles."""
        self._session.may(Role.VIEWER)
        return {name: note for name, note in self._session.policy.triage.items() if queue in (None, name)}

    async def drill(
        self,
        enqueue: Callable[[str, str], Awaitable[Task]],
        *,
        patience: float = 30.0,
        looks: Mapping[str, drill.Look] = MappingProxyType({}),
    ) -> drill.Drill:
        """Makes a failure in a marked test task, finds it, also by ``looks`` through the faces, retries it, verifies
        it, and writes down how it went."""
        who = self._session.may(Role.OPERATOR)
        from redrive.ops import drill

        return await drill.run(self._store, enqueue, actor=who, patience=patience, looks=looks)

    async def drills(self) -> list[Record]:
        """Returns earlier drills, newest first."""
        self._session.may(Role.VIEWER)
        from redrive.ops import drill

        return await self._store.records(drill.COLLECTION, limit=MOST_DRILLS_LISTED)
