"""How much is measured: sizes for ``--quick`` and ``--full``."""

from __future__ import annotations

from dataclasses import dataclass

GROWTH = ("waiting", "delayed", "failed", "history", "saturated")
FLOOR_OF_DRAIN = (("cycle", 1000, 1), ("cycle", 1000, 2))  # 1000: the worker's concurrency
FLOORS = (*FLOOR_OF_DRAIN, ("cycle", 100, 1), ("cycle", 1, 1), ("enqueue", 1, 1), ("enqueue", 1000, 1))
SECTIONS = (
    "floor",
    "drain",
    "enqueue",
    "pickup",
    "idle",
    "growth",
    "horizon",
    "operating",
    "scraped",
    "batch",
    "remote",
    "outbox",
)


@dataclass(frozen=True)
class Plan:
    name: str
    drain_seconds: float  # how long a drain should take; tasks are sized by the peer's usual rate
    batches: int  # and at least so many batches long, since half a batch at each end goes unmeasured
    repeats: int  # for redrive and the peer it is compared with; all others once
    processes: tuple[int, ...]  # worker processes of the peers nobody compares with
    pickups: int
    enqueue_seconds: float
    floor_seconds: int
    idle_seconds: float
    floors: tuple[tuple[str, int, int], ...]  # statement, rows a call, clients
    growth: tuple[int, ...]
    growth_cases: tuple[str, ...]
    growth_sample: int
    kinds: tuple[int, ...]
    payloads: tuple[int, ...]
    clean_seconds: float
    pinned_seconds: float
    window_seconds: float
    operating: tuple[int, int]  # failed tasks, and finished ones, that an operator has to live with
    scraped: tuple[int, float]  # pairs of drains with metrics and without, and how long each should take
    batch: tuple[int, int]  # pairs of drains with one batch and without, and of how many tasks
    remote: tuple[int, int]  # batches at a provider, and their items together
    outbox: tuple[
        int, int, int
    ]  # rounds of drains, the events of each, and how many wait behind them in a long backlog
    deadline: float | None  # what would end later than this is reported as not measured


QUICK = Plan(
    name="quick",
    drain_seconds=0.6,
    batches=20,
    repeats=1,
    processes=(1,),
    pickups=60,
    enqueue_seconds=0.4,
    floor_seconds=2,
    idle_seconds=4,
    floors=FLOOR_OF_DRAIN,
    growth=(100_000,),
    growth_cases=GROWTH[:4],
    growth_sample=20_000,
    kinds=(),
    payloads=(),
    clean_seconds=5,
    pinned_seconds=8,
    window_seconds=1,
    operating=(20_000, 50_000),
    scraped=(3, 3.0),
    batch=(2, 40_000),
    remote=(10, 500),
    outbox=(1, 10_000, 30_000),
    deadline=150,
)

FULL = Plan(
    name="full",
    drain_seconds=3,
    batches=60,
    repeats=3,
    processes=(1, 2),
    pickups=1000,
    enqueue_seconds=2,
    floor_seconds=4,
    idle_seconds=20,
    floors=FLOORS,
    growth=(100_000, 1_000_000),
    growth_cases=GROWTH,
    growth_sample=60_000,
    kinds=(10, 100),
    payloads=(200, 10_000, 100_000),
    clean_seconds=130,
    pinned_seconds=130,
    window_seconds=10,
    operating=(1_000_000, 5_000_000),
    scraped=(9, 5.0),
    batch=(3, 1_000_000),
    remote=(50, 100_000),
    outbox=(3, 60_000, 1_000_000),
    deadline=None,
)

# For working on the bench itself: everything once, as small as it can be. Its figures mean nothing.
SMOKE = Plan(
    name="smoke",
    drain_seconds=0.1,
    batches=3,
    repeats=1,
    processes=(1,),
    pickups=10,
    enqueue_seconds=0.1,
    floor_seconds=1,
    idle_seconds=1,
    floors=FLOORS,
    growth=(5_000,),
    growth_cases=GROWTH,
    growth_sample=3_000,
    kinds=(10,),
    payloads=(10_000,),
    clean_seconds=3,
    pinned_seconds=3,
    window_seconds=1,
    operating=(2_000, 2_000),
    scraped=(1, 0.1),
    batch=(1, 1_000),
    remote=(3, 30),
    outbox=(1, 1_000, 2_000),
    deadline=None,
)
