"""The contract of a store, as tests. Every store passes all of it; differences are capability flags.

Bind it in a test module, beside a fixture ``harness`` that yields a ``Harness`` for the store::

    from redrive.testing.conformance import *

    pytestmark = pytest.mark.anyio
"""

from __future__ import annotations

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from redrive.testing.conformance.bounds import TestBounds  # noqa: E402
from redrive.testing.conformance.cancel import TestCancel  # noqa: E402
from redrive.testing.conformance.circuits import TestCircuits  # noqa: E402
from redrive.testing.conformance.claim import TestClaim, TestHandles  # noqa: E402
from redrive.testing.conformance.cost import TestCost  # noqa: E402
from redrive.testing.conformance.enqueue import TestEnqueue, TestIdempotency, TestNames  # noqa: E402
from redrive.testing.conformance.failed import TestFailed, TestGivenUp  # noqa: E402
from redrive.testing.conformance.fence import TestFence  # noqa: E402
from redrive.testing.conformance.figures import TestFigures, TestOverdue  # noqa: E402
from redrive.testing.conformance.holds import TestHolds, TestTaskHolds  # noqa: E402
from redrive.testing.conformance.invariants import TestInvariants  # noqa: E402
from redrive.testing.conformance.joins import TestJoins  # noqa: E402
from redrive.testing.conformance.landings import TestLandings  # noqa: E402
from redrive.testing.conformance.ledger import TestLedger  # noqa: E402
from redrive.testing.conformance.limits import TestLimits  # noqa: E402
from redrive.testing.conformance.liveness import TestLiveness  # noqa: E402
from redrive.testing.conformance.members import TestMembers  # noqa: E402
from redrive.testing.conformance.operators import TestOperators  # noqa: E402
from redrive.testing.conformance.pages import TestPages  # noqa: E402
from redrive.testing.conformance.reactions import TestReactions  # noqa: E402
from redrive.testing.conformance.reads import TestReads  # noqa: E402
from redrive.testing.conformance.records import TestAudit, TestRecords  # noqa: E402
from redrive.testing.conformance.recover import TestRecover  # noqa: E402
from redrive.testing.conformance.renew import TestRenew  # noqa: E402
from redrive.testing.conformance.schedules import TestSchedules  # noqa: E402
from redrive.testing.conformance.series import TestSeries  # noqa: E402
from redrive.testing.conformance.settle import TestSettle  # noqa: E402
from redrive.testing.conformance.tick import TestTick  # noqa: E402
from redrive.testing.conformance.totals import TestTotals  # noqa: E402
from redrive.testing.conformance.transaction import TestTransaction  # noqa: E402
from redrive.testing.conformance.upkeep import TestUpkeep  # noqa: E402
from redrive.testing.conformance.wakes import TestWakes  # noqa: E402

__all__ = [
    "TestAudit",
    "TestBounds",
    "TestCancel",
    "TestCircuits",
    "TestClaim",
    "TestCost",
    "TestEnqueue",
    "TestFailed",
    "TestFence",
    "TestFigures",
    "TestGivenUp",
    "TestHandles",
    "TestHolds",
    "TestIdempotency",
    "TestInvariants",
    "TestJoins",
    "TestLandings",
    "TestLedger",
    "TestLimits",
    "TestLiveness",
    "TestMembers",
    "TestNames",
    "TestOperators",
    "TestOverdue",
    "TestPages",
    "TestReactions",
    "TestReads",
    "TestRecords",
    "TestRecover",
    "TestRenew",
    "TestSchedules",
    "TestSeries",
    "TestSettle",
    "TestTaskHolds",
    "TestTick",
    "TestTotals",
    "TestTransaction",
    "TestUpkeep",
    "TestWakes",
]
