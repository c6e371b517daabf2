"""What people may look at and do with projections: list, show, search, replay, rebuild, verify. The same figures in the
console, in the API and on the command line; the store counts them as events move, however many there are."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.operation import Operation
from redrive.kernel.ports.store import Overview
from redrive.ops.access import Role
from redrive.ops.circuits import describe
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operations.selection import Selection, planned_retry, select
from redrive.ops.operator.declared import Closed, Given, Open, Page, Reason, action, look, view_of
from redrive.ops.operator.failures import FailureService
from redrive.ops.operator.operations import OperationService
from redrive.ops.operator.session import Service
from redrive.ops.views import OperationView
from redrive.ops.workers import live_workers
from redrive.outbox.application import projection_in, projections_of
from redrive.outbox.event import kind_of, queue_of
from redrive.outbox.health import EventCounts, event_counts
from redrive.outbox.index_watch import index_state, index_states
from redrive.outbox.operations import begin_rebuild, begin_verify
from redrive.outbox.projection import Projection
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sink import Rebuildable, Searchable
from redrive.outbox.sinks import sink_words
from redrive.outbox.triggers import postgres, sqlite
from redrive.outbox.triggers.table_mapping import SEQUENCE, map_table, shape_of

MOST_HITS = 1000
MOST_WORDS = 1000  # characters of what is searched for
MOST_REASONS = 50
EVENTS_OF_A_STATE = 5
DEFAULT_REPLAY, MOST_REPLAYED = 100, 1_000_000
SETTINGS_SHOWN = (
    "lease_seconds",
    "reclaim_interval_seconds",
    "max_processing_seconds",
    "max_attempts",
    "base_backoff_seconds",
    "max_backoff_seconds",
    "batch_bytes",
    "batch_seconds",
    "keep_seconds",
    "tombstone_days",
    "oldest_alert_seconds",
    "rebuild_lost",
    "verify_hours",
)


def _check_number(most: int) -> Callable[[int], int]:
    def check(number: int) -> int:
        if not 1 <= number <= most:
            raise InvalidInput(f"limit is from 1 to {most:,}")
        return number

    return check


def _check_words(text: str) -> str:
    if not 1 <= len(text) <= MOST_WORDS:
        raise InvalidInput(f"the words to search for have 1 to {MOST_WORDS:,} characters")
    return text


Name = Annotated[str, Given("Its name, as redrive outbox lists it.", metavar="PROJECTION")]
Words = Annotated[str, Given("Words that the documents have.", metavar="TEXT", check=_check_words)]
HitLimit = Annotated[int, Given("How many at most.", metavar="N", check=_check_number(MOST_HITS))]
ReplayLimit = Annotated[int, Given("How many at most, those that failed first.", check=_check_number(MOST_REPLAYED))]
AllowRefused = Annotated[int, Given("So many documents may be refused by the new index.", label="may be refused")]
AllowEmpty = Annotated[bool, Given("An empty source is no mistake.", label="The source may be empty")]
Repair = Annotated[
    bool,
    Given(
        "What is missing or stale is published anew, what is extra is deleted.",
        label="Repair: publish anew what is missing, stale or extra",
    ),
]


FIGURES = ("lag", "pending", "processing", "inflight", "retries", "stuck", "failed", "done", "workers")
LONGEST_WHY = 60


def _age(one: ProjectionLine, _: datetime | None = None) -> str:
    """Returns how long the oldest event that is not done has waited."""
    return "-" if one.oldest_age is None else f"{one.oldest_age:.0f} s"


def _reasons(found: Sequence[EventsByReason]) -> str:
    return ", ".join(f"{one.reason or 'unknown'} {one.events:,}" for one in found)


def _tries(one: EventView, _: datetime) -> str:
    return f"{one.attempts}/{one.max_attempts}"


def _why(one: EventView, _: datetime) -> str:
    why = one.error or one.error_reason or ""
    return why if len(why) <= LONGEST_WHY else f"{why[:LONGEST_WHY]}…"


@dataclass(slots=True, frozen=True)
class PauseOfProjection:
    by: Annotated[str, Open()]
    reason: Annotated[str | None, Open()]
    at: Annotated[datetime, Open()]


@dataclass(slots=True, frozen=True)
class ProjectionLine:
    """A projection in the list: how far behind its sink is."""

    projection: Annotated[str, Open(column="projection")]
    pending: Annotated[int, Open(column="pending")]
    retries: Annotated[int, Open("Of the pending ones, those that wait for another attempt.", column="retries")]
    processing: Annotated[int, Open(column="processing")]
    done: Annotated[int, Open(column="done")]
    failed: Annotated[int, Open(column="failed")]
    stuck: Annotated[int, Open("Processing, and the lease is over, or it takes too long.", column="stuck")]
    oldest_age: Annotated[
        float | None, Open("Seconds since the oldest that is not done was published.", column="oldest", cell=_age)
    ]
    sink: Annotated[str | None, Open("Without a password; null where another application declares it.", column="sink")]
    queue: Annotated[str, Open()]
    lag: Annotated[int, Open("Events that are not done: pending and processing.")]
    inflight: Annotated[int, Open("Processing under a live lease.")]
    workers: Annotated[int, Open("Live ones that have its queue.")]
    paused: Annotated[PauseOfProjection | None, Open()]


@dataclass(slots=True, frozen=True)
class EventsByReason:
    reason: Annotated[str | None, Open()]
    events: Annotated[int, Open()]


@dataclass(slots=True, frozen=True)
class CircuitOfProjection:
    name: Annotated[str, Open()]
    state: Annotated[str, Open()]
    open: Annotated[bool, Open()]
    told: Annotated[str, Open("The state in a sentence.")]


@dataclass(slots=True, frozen=True)
class EventView:
    """An event that waits or failed."""

    id: Annotated[str, Open(column="event")]
    status: Annotated[str, Open(column="status")]
    entity: Annotated[str | None, Open(column="entity")]
    op: Annotated[str | None, Open(column="op")]
    version: Annotated[int | None, Open(column="version")]
    attempts: Annotated[int, Open(column="attempts", cell=_tries)]
    max_attempts: Annotated[int, Open()]
    replay_count: Annotated[int, Open()]
    created_at: Annotated[datetime | None, Open(column="published")]
    failed_at: Annotated[datetime | None, Open()]
    next_retry_at: Annotated[datetime | None, Open()]
    lease_until: Annotated[datetime | None, Open()]
    error_reason: Annotated[str | None, Open()]
    error: Annotated[
        str | None,
        Closed("What the error says, which may quote the document; for operators.", column="why", cell=_why),
    ]


@dataclass(slots=True, frozen=True)
class ProjectionView(ProjectionLine):
    """Everything about one projection."""

    sink_kind: Annotated[str | None, Open()]
    sink_state: Annotated[str, Open("Whether it can be reached from here.")]
    sink_detail: Annotated[str | None, Open()]
    searchable: Annotated[bool, Open()]
    rebuildable: Annotated[bool, Open()]
    index_problem: Annotated[str | None, Open("That its index was lost, or differs from the source.")]
    index_lost_at: Annotated[datetime | None, Open()]
    verified_at: Annotated[datetime | None, Open()]
    differs: Annotated[int, Open("In how many documents, when it was last compared.")]
    circuit: Annotated[CircuitOfProjection | None, Open()]
    failures: Annotated[list[EventsByReason], Open()]
    retried: Annotated[list[EventsByReason], Open("Why events wait for another attempt.")]
    events: Annotated[list[EventView], Open("Some of each state, those that wait or failed first.")]
    settings: Annotated[dict[str, Any] | None, Closed("Those in force, as this process has them; for operators.")]

    @property
    def sentence(self) -> str:
        facts = {"projection": self.projection, "sink": f"{self.sink or 'not declared here'}: {self.sink_state}"}
        if self.sink_detail:
            facts["sink"] += f" ({self.sink_detail})"
        if self.paused is not None:
            facts["paused"] = f"by {self.paused.by}: {self.paused.reason or 'no reason given'}"
        if self.circuit is not None:
            facts["circuit"] = self.circuit.told
        facts |= {name: str(getattr(self, name)) for name in FIGURES} | {"oldest": _age(self)}
        facts |= {"failed by": _reasons(self.failures), "retried for": _reasons(self.retried)}
        lines = [f"{name:<12} {text}" for name, text in facts.items() if text]
        if self.rebuildable and not self.events:
            lines.append(f"what was written past the outbox is found by: redrive outbox verify {self.projection}")
        return "\n".join(lines)


@dataclass(slots=True, frozen=True)
class HitView:
    key: Annotated[str, Open()]
    score: Annotated[float, Open()]
    document: Annotated[Any, Closed()]


@dataclass(slots=True, frozen=True)
class Hits:
    """What a search has found, the best first."""

    items: Annotated[list[HitView], Open()]
    warnings: Annotated[list[str], Open("What the search leaves out.")] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Replayed:
    """What a replay did, or of a dry run, would do."""

    matched: Annotated[int, Open("Events that were meant.")]
    cancelled: Annotated[int, Open()]
    retried: Annotated[int, Open()]
    skipped: Annotated[int, Open()]
    dry_run: Annotated[bool, Open()]
    needs_approval: Annotated[str | None, Open("Why a second operator has to agree.")]
    bulk_ids: Annotated[list[str], Open("Operations: GET /api/operations/{id} says what became of the events.")]


@dataclass(slots=True, frozen=True)
class ProjectionOperation:
    """What workers carry out from now on; ``GET /api/operations/{id}`` shows, pauses, resumes and cancels it."""

    operation: Annotated[OperationView, Open("As GET /api/operations/{id} shows it.")]


@dataclass(slots=True, frozen=True)
class ReplayPlan:
    """What a replay is about, by projection: the first of what failed; what fails later is another matter.
    ``approval`` says why a second operator would have to agree."""

    selections: Mapping[str, Selection]
    approval: str | None = None

    @property
    def number(self) -> int:
        return sum(one.number for one in self.selections.values())


class OutboxService(Service):
    """A search index that follows the database: projections, their events and sinks."""

    @look("GET /api/outbox", empty="no projection: app.outbox.projection(NAME, sink=…) declares one")
    async def list(self) -> Page[ProjectionLine]:
        """Projections, and how far behind their sinks are."""
        known = projections_of(self._session.registry)
        counts = {one.projection: one for one in await event_counts(self._store, self._session.settings)}
        seen = await self._store.overview()
        names = sorted({*known, *counts})
        lines = [ProjectionLine(**_line(name, known.get(name), counts.get(name), seen)) for name in names]
        return Page(lines, None)

    @look("GET /api/outbox/{projection}", said="{done.sentence}")
    async def show(self, projection: Name) -> ProjectionView:
        """One projection: figures, its sink, failures by reason, and the events that wait or fail longest."""
        store, known = self._store, projections_of(self._session.registry).get(projection)
        found = await event_counts(store, self._session.settings)
        counts = next((one for one in found if one.projection == projection), None)
        if known is None and counts is None:
            raise NotFound(f"there is no projection {projection!r}", hint="redrive outbox lists them")
        seen, queue, index = await store.overview(), queue_of(projection), await index_state(store, projection)
        rows = store.sql.feature_rows
        return ProjectionView(
            **_line(projection, known, counts, seen),
            **await _sink(known),
            index_problem=index.problem,
            index_lost_at=to_datetime(index.lost_at),
            verified_at=to_datetime(index.verified_at),
            differs=index.differs,
            circuit=_circuit(seen, kind_of(projection)),
            failures=[EventsByReason(**row) for row in await rows("outbox", "failed_by_reason", queue, MOST_REASONS)],
            retried=[EventsByReason(**row) for row in await rows("outbox", "retried_by_reason", queue, MOST_REASONS)],
            events=[_event(row) for row in await rows("outbox", "longest_events", queue, EVENTS_OF_A_STATE)],
            settings=self._settings(known),
        )

    @look("GET /api/outbox/{projection}/search", role=Role.OPERATOR)
    async def search(self, projection: Name, text: Words, limit: HitLimit = 10) -> Hits:
        """Search the documents of a projection, where its sink can: full text and search servers. They hold what
        payloads hold, so it is for those who may act."""
        one = projection_in(self._session.registry, projection)
        sink = one.sink_to_look_at()
        if not isinstance(sink, Searchable):
            raise InvalidInput(
                f"the sink of {one.name} cannot be searched from here",
                hint="full text, PostgreSQL and search servers can, and a sink of your own that has a method search; "
                "else ask the sink itself",
            )
        found = await sink.search(text, limit)
        return Hits([HitView(hit.key, round(hit.score, 6), hit.document) for hit in found])

    def only(self) -> str:
        """Returns the name of the only projection; refused where there are several."""
        return projection_in(self._session.registry, None).name

    @action("POST /api/outbox/{projection}/replay", said="{done.retried:,} of {done.matched:,} events are tried again")
    async def replay(
        self,
        projection: Name,
        limit: ReplayLimit = DEFAULT_REPLAY,
        dry_run: Annotated[bool, Given("Only say what would be done.")] = False,
        forgotten: Annotated[bool, Given("Also what was forgotten or purged.")] = False,
        reason: Reason = None,
    ) -> Replayed:
        """Try failed events again, those that failed first, up to ``limit``. What needs a second operator is refused
        with 409: begin it as an operation."""
        plan = await self.plan_replay([projection], limit, forgotten=forgotten)
        done = await self.foresee(plan) if dry_run else await self.replay_plan(plan, reason)
        return view_of(Replayed, done, retried=done.done, skipped=done.left)

    async def plan_replay(
        self, projections: Sequence[str] = (), limit: int = DEFAULT_REPLAY, *, forgotten: bool = False
    ) -> ReplayPlan:
        """Returns what a replay of these projections' failed events would be about (of none named: of all), and whether
        a second operator would have to agree. ``forgotten``: also what was forgotten or purged. Changes nothing."""
        self._session.may(Role.OPERATOR)
        left, selections = _check_number(MOST_REPLAYED)(limit), dict[str, Selection]()
        for name in await self._named(projections):
            which = FailureFilter(queue=queue_of(name), forgotten=forgotten or None)
            selections[name] = await select(self._store, which, left)
            left -= selections[name].number
        return ReplayPlan(selections, await self._session.needs(planned_retry(selections.values())))

    async def foresee(self, plan: ReplayPlan) -> RetryResult:
        """Returns what a replay would do; changes nothing."""
        return await FailureService(self._session).foresee(*plan.selections.values())

    async def replay_plan(
        self, plan: ReplayPlan, reason: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> RetryResult:
        """Replays exactly what the plan says, here and now; or, where a second operator has to agree, nothing."""
        return await FailureService(self._session).replay(*plan.selections.values(), reason=reason, progress=progress)

    @action(
        "POST /api/outbox/{projection}/rebuild",
        role=Role.ADMIN,
        said="it is rebuilt; below is how far that has come",
        status=202,
    )
    async def rebuild(
        self,
        projection: Name,
        allow_refused: AllowRefused = 0,
        allow_empty: AllowEmpty = False,
        reason: Reason = None,
    ) -> ProjectionOperation:
        """Begin to rebuild a projection from its source into a new index, which becomes the live one. Workers carry it
        out."""
        begun = await begin_rebuild(
            self._store,
            projection_in(self._session.registry, projection),
            actor=self._who,
            reason=reason,
            allow_refused=allow_refused,
            allow_empty=allow_empty,
        )
        return await self._begun(begun)

    @action(
        "POST /api/outbox/{projection}/verify",
        said="it is compared with its source; below is how far that has come",
        status=202,
    )
    async def verify(self, projection: Name, repair: Repair = False, reason: Reason = None) -> ProjectionOperation:
        """Begin to compare the index of a projection with its source. Workers carry it out; ``work.result`` of the
        operation has what differs."""
        one = projection_in(self._session.registry, projection)
        return await self._begun(await begin_verify(self._store, one, actor=self._who, reason=reason, repair=repair))

    async def trigger(
        self,
        table: str,
        projection: str,
        *,
        entity_type: str | None = None,
        id: str | None = None,
        version: str = SEQUENCE,
        columns: Sequence[str] | None = None,
    ) -> str:
        """Returns the script that projects a table. It looks at the table's definition, and changes nothing."""
        self._session.may(Role.OPERATOR)
        shape, tries = await shape_of(self._store, table), self._session.settings.of(OutboxSettings).max_attempts
        options: dict[str, Any] = {"entity_type": entity_type, "id": id, "version": version, "columns": columns}
        one = map_table(shape, projection, **options, max_attempts=tries)
        return postgres.trigger_sql(one) if one.schema else sqlite.trigger_sql(one)

    async def used(self) -> bool:
        """Returns whether anybody uses the outbox: a projection was declared, or something published."""
        self._session.may(Role.VIEWER)
        declared = any(not one.built_in for one in projections_of(self._session.registry).values())
        return declared or bool(await event_counts(self._store, self._session.settings))

    async def troubled(self) -> int:
        """Returns how many projections need somebody: events of them failed, are stuck, or wait for too long."""
        self._session.may(Role.VIEWER)
        oldest = self._session.settings.of(OutboxSettings).oldest_alert_seconds
        found = await event_counts(self._store, self._session.settings)
        wrong = {one.projection for one in found if one.failed or one.stuck or (one.oldest_age or 0.0) > oldest}
        return len(wrong | {one.projection for one in await index_states(self._store) if one.problem is not None})

    async def _begun(self, operation: Operation) -> ProjectionOperation:
        return ProjectionOperation(await OperationService(self._session).show(operation.id))

    async def _named(self, projections: Sequence[str]) -> builtins.list[str]:
        """Returns these projections, or all; refuses one that nobody declared and nothing was published to."""
        known = set(projections_of(self._session.registry))
        if not known.issuperset(projections) or not projections:
            known |= {one.projection for one in await event_counts(self._store, self._session.settings)}
        for name in projections:
            if name not in known:
                projection_in(self._session.registry, name)
        return [*dict.fromkeys(projections)] or sorted(known)

    def _settings(self, projection: Projection | None) -> dict[str, Any]:
        """Returns the settings in force, as this process has them; batch and circuit are the projection's own."""
        own = self._session.settings.of(OutboxSettings)
        batch = own.batch if projection is None else projection.batch
        circuit = projection is not None and projection.circuit is not None
        return {"batch": batch, "circuit": circuit, **{name: getattr(own, name) for name in SETTINGS_SHOWN}}


def _line(name: str, projection: Projection | None, found: EventCounts | None, seen: Overview) -> dict[str, Any]:
    """Returns the fields of a projection's line."""
    counts, queue = found or EventCounts(name), queue_of(name)
    pause = seen.pause_of("queue", queue)
    return {
        **asdict(counts),
        "lag": counts.lag,
        "oldest_age": None if counts.oldest_age is None else round(counts.oldest_age, 3),
        "queue": queue,
        "sink": None if projection is None else projection.shown,
        "workers": sum(queue in row.queues for row in live_workers(seen)),
        "paused": None if pause is None else view_of(PauseOfProjection, pause, by=pause.actor),
    }


async def _sink(projection: Projection | None) -> dict[str, Any]:
    """Returns the fields of a projection's sink."""
    sink: object = None
    if projection is None:
        return {"sink_kind": None, "sink_state": "unknown", "sink_detail": None, **_abilities(sink)}
    reached = await projection.watch.look()
    with suppress(Exception):  # it cannot be made here, as the watch has told
        sink = projection.sink_to_look_at()
    kind = sink_words(projection.shown)
    return {"sink_kind": kind, "sink_state": reached.word, "sink_detail": reached.detail, **_abilities(sink)}


def _abilities(sink: object) -> dict[str, bool]:
    return {"searchable": isinstance(sink, Searchable), "rebuildable": isinstance(sink, Rebuildable)}


def _circuit(seen: Overview, kind: str) -> CircuitOfProjection | None:
    row = next((one for one in seen.circuits if kind in one.kinds), None)
    if row is None:
        return None
    return CircuitOfProjection(row.name, row.state(seen.now).value, row.open, describe(row, seen.now))


def _event(row: Mapping[str, Any]) -> EventView:
    times = {name: to_datetime(row[name]) for name in ("created_at", "failed_at", "next_retry_at", "lease_until")}
    return EventView(**{**row, **times, "id": str(row["id"])})
