# ruff: noqa: E402, F401 (assertions are rewritten before the suites are imported, and these are for others)
"""The contract of a store, as tests. Every store passes all of it; differences are capability flags.

Bind it in a test module, beside a fixture ``harness`` that yields a ``Harness`` for the store::

    from redrive_kit.conformance import *

    pytestmark = pytest.mark.anyio
"""

from __future__ import annotations

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from redrive_kit.conformance.bounds import TestBounds
from redrive_kit.conformance.cancel import TestCancel
from redrive_kit.conformance.circuits import TestCircuits
from redrive_kit.conformance.claim import TestClaim, TestHandles, TestRenew
from redrive_kit.conformance.cost import TestCost
from redrive_kit.conformance.enqueue import TestEnqueue, TestIdempotency, TestNames
from redrive_kit.conformance.failed import TestFailed, TestGivenUp
from redrive_kit.conformance.fence import TestFence
from redrive_kit.conformance.figures import TestFigures, TestOverdue, TestTotals
from redrive_kit.conformance.holds import TestHolds, TestTaskHolds
from redrive_kit.conformance.invariants import TestInvariants
from redrive_kit.conformance.joins import TestJoins
from redrive_kit.conformance.ledger import TestLedger
from redrive_kit.conformance.limits import TestLimits
from redrive_kit.conformance.liveness import TestLiveness
from redrive_kit.conformance.operators import TestOperators
from redrive_kit.conformance.reactions import TestReactions
from redrive_kit.conformance.reads import TestMembers, TestPages, TestReads
from redrive_kit.conformance.records import TestAudit, TestRecords
from redrive_kit.conformance.recover import TestRecover
from redrive_kit.conformance.schedules import TestSchedules, TestTick
from redrive_kit.conformance.series import TestSeries
from redrive_kit.conformance.settle import TestLandings, TestSettle
from redrive_kit.conformance.transaction import TestTransaction
from redrive_kit.conformance.upkeep import TestUpkeep
from redrive_kit.conformance.wakes import TestWakes

__all__ = [name for name in globals() if name.startswith("Test")]
