"""What people may do with projections, by role: look at them, search, replay, rebuild, verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redrive.errors import InvalidInput
from redrive.kernel.operation import Operation
from redrive.kernel.records import Record
from redrive.ops.access import Role
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operations.selection import planned_retry
from redrive.ops.operator.failures import FailureService
from redrive.ops.operator.session import Service
from redrive.outbox import projection_figures, replay
from redrive.outbox.duties import under_way
from redrive.outbox.event_counts import event_counts
from redrive.outbox.operations import begin_rebuild, begin_verify
from redrive.outbox.projections import projection_in, projections_of
from redrive.outbox.replay import ReplayPlan
from redrive.outbox.sink import PAIRS_MISSING, PairIndex, Searchable
from redrive.outbox.sinks.text_words import query_of

MOST_HITS = 1000


class OutboxService(Service):
    """``operator.of(OutboxService)``."""

    async def overview(self) -> list[dict[str, Any]]:
        """Returns all projections: those of the application, and others that events were published to."""
        self._session.may(Role.VIEWER)
        return await projection_figures.overview(self._session)

    async def show(self, projection: str) -> dict[str, Any]:
        """Returns everything about one: figures, failures by reason, its sink, the events that wait or fail longest,
        and, for those who may act, what errors say and the settings in force."""
        self._session.may(Role.VIEWER)
        return await projection_figures.show(self._session, projection, whole=self._session.sight.whole)

    async def used(self) -> bool:
        """Returns whether anybody uses the outbox."""
        self._session.may(Role.VIEWER)
        return await projection_figures.used(self._session)

    async def troubled(self) -> int:
        """Returns how many projections need somebody."""
        self._session.may(Role.VIEWER)
        return await projection_figures.troubled(self._session)

    async def search(self, projection: str | None, text: str, limit: int = 10) -> list[dict[str, Any]]:
        """Returns the documents that fit best. They hold what payloads hold, so a viewer may not."""
        self._session.may(Role.OPERATOR)
        if not 1 <= limit <= MOST_HITS:
            raise InvalidInput(f"limit is from 1 to {MOST_HITS}")
        one = projection_in(self._session.registry, projection)
        sink = one.sink_to_look_at()
        if not isinstance(sink, Searchable):
            raise InvalidInput(
                f"the sink of {one.name} cannot be searched from here",
                hint="full text, PostgreSQL and search servers can, and a sink of your own that has a method search; "
                "else ask the sink itself",
            )
        hits = await sink.search(text, limit)
        return [{"key": hit.key, "score": round(hit.score, 6), "document": hit.document} for hit in hits]

    async def search_gap(self, projection: str | None, text: str) -> str | None:
        """Returns what a search for a text leaves out, and the command that brings it: an index from before Chinese,
        Japanese and Korean were found has them only in what was written since."""
        self._session.may(Role.OPERATOR)
        one = projection_in(self._session.registry, projection)
        sink = one.sink_to_look_at()
        if not query_of(text).runs or not isinstance(sink, PairIndex) or await sink.finds_pairs():
            return None
        return f"{PAIRS_MISSING}; for all of it: redrive outbox rebuild {one.name}"

    async def plan_replay(
        self, projections: Sequence[str] = (), limit: int = replay.DEFAULT_LIMIT, *, forgotten: bool = False
    ) -> ReplayPlan:
        """Returns what a replay of these projections' failed events would be about (of none named: of all), and whether
        a second operator would have to agree. ``forgotten``: also what was forgotten or purged. Changes nothing."""
        self._session.may(Role.OPERATOR)
        if not 1 <= limit <= replay.MOST:
            raise InvalidInput(f"limit is from 1 to {replay.MOST:,}")
        parts = await replay.plan_replay(self._store, await self._named(projections), limit, forgotten)
        needed = await self._session.needs(planned_retry(part.selection for part in parts))
        return ReplayPlan(parts, needed)

    async def foresee(self, plan: ReplayPlan) -> RetryResult:
        """Returns what a replay would do; changes nothing."""
        return await FailureService(self._session).foresee(*plan.selections)

    async def replay(
        self, plan: ReplayPlan, reason: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> RetryResult:
        """Replays exactly what the plan says, here and now; or, where a second operator has to agree, nothing."""
        return await FailureService(self._session).replay(*plan.selections, reason=reason, progress=progress)

    async def rebuild(
        self, projection: str, *, reason: str | None = None, allow_refused: int = 0, allow_empty: bool = False
    ) -> Operation:
        """Begins to rebuild a projection from its source into a new index, which becomes the live one; returns the
        operation, which workers carry out. ``allow_refused``: so many documents may be refused by the new index;
        ``allow_empty``: an empty source is no mistake."""
        who, one = self._session.may(Role.ADMIN), projection_in(self._session.registry, projection)
        return await begin_rebuild(
            self._store, one, actor=who, reason=reason, allow_refused=allow_refused, allow_empty=allow_empty
        )

    async def verify(self, projection: str, *, reason: str | None = None, repair: bool = False) -> Operation:
        """Begins to compare the index of a projection with its source; returns the operation, which workers carry out.
        ``repair``: what differs is published anew."""
        who, one = self._session.may(Role.OPERATOR), projection_in(self._session.registry, projection)
        return await begin_verify(self._store, one, actor=who, reason=reason, repair=repair)

    async def work_of(self, projection: str) -> dict[str, Record | None]:
        """Returns the operations that rebuild and compare a projection now, by ``rebuild`` and ``verify``."""
        self._session.may(Role.VIEWER)
        return await under_way(self._store, projection)

    async def _named(self, projections: Sequence[str]) -> list[str]:
        """Returns these projections, or all; refuses one that nobody declared and nothing was published to."""
        known = set(projections_of(self._session.registry))
        if not known.issuperset(projections) or not projections:
            known |= {one.projection for one in await event_counts(self._store, self._session.settings)}
        for name in projections:
            if name not in known:
                projection_in(self._session.registry, name)
        return list(dict.fromkeys(projections)) or sorted(known)
