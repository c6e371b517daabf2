"""Counts what became of operations, and sums it up."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from redrive_kit.load.plan import LoadPlan

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


@dataclass(slots=True)
class Tally:
    """Times are kept as four bytes each: ten million of them are forty megabytes."""

    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    done: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    times: array[float] = field(default_factory=lambda: array("f"))
    prepared: int = 0
    interrupted: bool = False

    def succeeded(self, op: str, seconds: float) -> None:
        self.done[op] += 1
        self.times.append(seconds)

    def failed(self, kind: str) -> None:
        self.errors[kind] += 1

    def latency_ms(self) -> dict[str, float | None]:
        """Returns how long operations that were done took: so many of them took no longer."""
        ordered = sorted(self.times)
        if not ordered:
            return dict.fromkeys(SHARES)
        return {
            name: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)
            for name, share in SHARES.items()
        }

    def summary(self, plan: LoadPlan, into: str) -> dict[str, Any]:
        """Returns everything as one document."""
        seconds = max((self.ended or time.monotonic()) - self.began, 1e-9)
        done = self.done.total()
        return {
            "into": into,
            "scenario": plan.scenario.value,
            "total": plan.total,
            "bytes": plan.bytes,
            "rate": plan.rate,
            "concurrency": plan.concurrency,
            "prepared": self.prepared,
            "done": done,
            "failed": self.errors.total(),
            "operations": dict(self.done),
            "errors": dict(self.errors.most_common()),
            "seconds": round(seconds, 3),
            "per_second": round(done / seconds, 1),
            "latency_ms": self.latency_ms(),
            "interrupted": self.interrupted,
        }
