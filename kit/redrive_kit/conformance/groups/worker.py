# ruff: noqa: F401 (these are for others)
"""The worker's part: what ``WorkerStore`` promises. Besides ``WorkerReads``, tests look through ``counts``,
``timeline`` and ``audit``."""

from __future__ import annotations

from redrive_kit.conformance.bounds import TestBounds
from redrive_kit.conformance.cancel import TestCancel
from redrive_kit.conformance.circuits import TestCircuits
from redrive_kit.conformance.claim import TestClaim, TestHandles, TestRenew
from redrive_kit.conformance.enqueue import TestEnqueue, TestIdempotency, TestNames
from redrive_kit.conformance.fence import TestFence
from redrive_kit.conformance.holds import TestHolds, TestTaskHolds
from redrive_kit.conformance.limits import TestLimits
from redrive_kit.conformance.liveness import TestLiveness
from redrive_kit.conformance.operators import TestOperators
from redrive_kit.conformance.records import TestRecords
from redrive_kit.conformance.recover import TestRecover
from redrive_kit.conformance.schedules import TestSchedules, TestTick
from redrive_kit.conformance.settle import TestLandings, TestSettle
from redrive_kit.conformance.transaction import TestTransaction
from redrive_kit.conformance.wakes import TestWakes

__all__ = [name for name in globals() if name.startswith("Test")]
