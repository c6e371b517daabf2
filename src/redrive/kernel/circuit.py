"""Circuits: when a kind's other side is down, its tasks wait without using attempts, and one at a time tries again.

Pure: a worker counts how attempts end (``Window``), and what follows for the circuit of the whole fleet is decided by
the functions below. A store keeps the circuit's row, and lets no task of its kinds be claimed while it is open, but for
the probe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.backoff import Backoff
from redrive.kernel.classify import FailureType
from redrive.kernel.task import check_int, check_name, check_seconds

if TYPE_CHECKING:
    from redrive.kernel.failure import Failure

MOST_REMEMBERED = 1000  # ends of attempts, of which a share is taken
DOWN_REASONS = frozenset({"connect", "timeout", "tls", "http_408", "http_429", "http_5xx", "unavailable"})
DOWN_TYPES = frozenset({FailureType.TIMEOUT, FailureType.NETWORK})
MAX_REASON = 300


@dataclass(slots=True, frozen=True)
class Circuit:
    """When the circuit of a kind opens, and when it is tried again.

    It opens after ``failures`` attempts in a row that found the other side down; with ``ratio`` also when so many of
    the last ``window`` seconds did, and they are at least this share of all. A probe comes after ``delay`` seconds,
    each further one after twice as long, ``max_delay`` at most. Kinds that give the same ``name`` share a circuit;
    without one, it is the kind's own."""

    name: str | None = None
    failures: int = 5
    ratio: float | None = None
    window: float = 60.0
    delay: float = 5.0
    max_delay: float = 300.0

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "Circuit(name)")
        check_int(self.failures, "Circuit(failures)", 1, MOST_REMEMBERED)
        for what in ("window", "delay", "max_delay"):
            if check_seconds(getattr(self, what), f"Circuit({what})") <= 0:
                raise InvalidInput(f"Circuit({what}) must be more than 0 seconds")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise InvalidInput(f"Circuit(ratio) must be more than 0, and 1 at most, not {self.ratio!r}")
        if self.max_delay < self.delay:
            raise InvalidInput(f"Circuit(max_delay={self.max_delay:g}) is less than its delay of {self.delay:g} s")

    def wait(self, failed_probes: int, jitter: float) -> float:
        """Returns the seconds until the next probe, after so many that failed."""
        return Backoff(self.delay, self.max_delay).delay(failed_probes + 1, jitter)


def circuit_of(kind: str, given: object) -> Circuit | None:
    """Returns ``circuit=`` of a kind, with a name: None and False mean none, True the usual one."""
    if given is None or given is False:
        return None
    if given is True:
        given = Circuit()
    if not isinstance(given, Circuit):
        raise InvalidInput(
            f"circuit= of {kind} must be True or a Circuit, not {given!r}", hint="write: circuit=Circuit(failures=10)"
        )
    return given if given.name is not None else replace(given, name=kind)


def is_down(failure: Failure) -> bool:
    """Returns whether a failure says that the other side is down, or wants to be left alone, whatever was asked."""
    return failure.retryable and (failure.reason in DOWN_REASONS or failure.type in DOWN_TYPES)


@dataclass(slots=True)
class Window:
    """How the last attempts of a circuit's kinds ended, as one worker has seen it."""

    in_a_row: int = 0
    ends: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=MOST_REMEMBERED))

    def note(self, terms: Circuit, at: float, down: bool) -> bool:
        """Counts an end at ``at`` (seconds of any steady clock); returns whether that is enough to open."""
        self.in_a_row = self.in_a_row + 1 if down else 0
        if terms.ratio is None:
            return self.in_a_row >= terms.failures
        self.ends.append((at, down))
        while self.ends and self.ends[0][0] <= at - terms.window:
            self.ends.popleft()
        found = sum(1 for _, one in self.ends if one)
        share = found >= terms.failures and found >= terms.ratio * len(self.ends)
        return down and (share or self.in_a_row >= terms.failures)

    def clear(self) -> None:
        self.in_a_row = 0
        self.ends.clear()


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"  # a probe may start, or runs


@dataclass(slots=True, frozen=True)
class CircuitRow:
    """A circuit of the fleet, as the store has it. ``since``: open or closed. ``probe`` and ``token``: the task that
    was let through last, and its lease."""

    name: str
    version: int
    kinds: tuple[str, ...]
    open: bool
    since: datetime
    until: datetime | None = None
    reason: str | None = None
    actor: str | None = None
    failed_probes: int = 0
    opened: int = 0
    probe: UUID | None = None
    token: UUID | None = None

    def state(self, now: datetime) -> CircuitState:
        if not self.open:
            return CircuitState.CLOSED
        waits = self.until is not None and self.until > now
        return CircuitState.OPEN if waits else CircuitState.HALF_OPEN


@dataclass(slots=True, frozen=True)
class SetCircuit:
    """Changes a circuit, if nobody did since it was read: ``version`` is that of the row, 0 for a new one. ``wait``:
    seconds until the next probe; None leaves that as it is."""

    name: str
    version: int
    kinds: tuple[str, ...]
    open: bool
    wait: float | None = None
    reason: str | None = None
    actor: str | None = None
    failed_probes: int = 0
    opened: int = 0


def trip(
    row: CircuitRow | None, terms: Circuit, kinds: Iterable[str], reason: str, actor: str, jitter: float
) -> SetCircuit | None:
    """Returns what opens a circuit for these kinds and those that it has; None where it is open for them already."""
    name = row.name if row is not None else terms.name or ""
    all_kinds = tuple(sorted({*kinds, *(row.kinds if row is not None else ())}))
    if row is not None and row.open:
        return None if all_kinds == row.kinds else replace(_same(row), kinds=all_kinds)
    version, opened = (0, 0) if row is None else (row.version, row.opened)
    return SetCircuit(name, version, all_kinds, True, terms.wait(0, jitter), cut(reason), actor, 0, opened + 1)


def probed(row: CircuitRow, terms: Circuit, down: str | None, actor: str, jitter: float) -> SetCircuit:
    """Returns what follows from the end of a probe: ``down`` says why the other side is still down, None: it is not."""
    if down is None:
        return close(row, "a probe got through", actor)
    failed = row.failed_probes + 1
    return replace(_same(row), wait=terms.wait(failed, jitter), reason=cut(down), failed_probes=failed)


def unproven(row: CircuitRow, terms: Circuit, jitter: float) -> SetCircuit:
    """Returns what follows from a probe that says nothing about the other side: the next one comes no later for it."""
    return replace(_same(row), wait=terms.wait(row.failed_probes, jitter))


def close(row: CircuitRow, reason: str | None, actor: str) -> SetCircuit:
    return SetCircuit(row.name, row.version, row.kinds, False, None, cut(reason), actor, 0, row.opened)


def probe_now(row: CircuitRow) -> SetCircuit:
    """Returns what lets the next probe start at once."""
    return replace(_same(row), wait=0.0)


def declare(rows: Sequence[CircuitRow], kinds: Mapping[str, str | None]) -> list[SetCircuit]:
    """Returns what makes the rows say which of an application's kinds have which circuit (None: none); other
    applications' kinds stay."""
    known = {row.name: row for row in rows}
    changes = []
    for name in sorted({*known, *(name for name in kinds.values() if name is not None)}):
        row = known.get(name)
        had = row.kinds if row is not None else ()
        has = {kind for kind, own in kinds.items() if own == name} | {kind for kind in had if kind not in kinds}
        if tuple(sorted(has)) != had or row is None:
            now = _same(row) if row is not None else SetCircuit(name, 0, (), False)
            changes.append(replace(now, kinds=tuple(sorted(has))))
    return changes


def _same(row: CircuitRow) -> SetCircuit:
    return SetCircuit(
        row.name, row.version, row.kinds, row.open, None, row.reason, row.actor, row.failed_probes, row.opened
    )


def cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:MAX_REASON]
