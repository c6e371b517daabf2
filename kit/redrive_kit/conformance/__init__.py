"""The contract of a store, as tests. Every store passes all of it; differences are capability flags.

Bind it in a test module, beside a fixture ``harness`` that yields a ``Harness`` for the store::

    from redrive_kit.conformance import *

    pytestmark = pytest.mark.anyio
"""

from __future__ import annotations

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from redrive_kit.conformance.bounds import TestBounds  # noqa: E402
from redrive_kit.conformance.cancel import TestCancel  # noqa: E402
from redrive_kit.conformance.circuits import TestCircuits  # noqa: E402
from redrive_kit.conformance.claim import TestClaim, TestHandles  # noqa: E402
from redrive_kit.conformance.cost import TestCost  # noqa: E402
from redrive_kit.conformance.enqueue import TestEnqueue, TestIdempotency, TestNames  # noqa: E402
from redrive_kit.conformance.failed import TestFailed, TestGivenUp  # noqa: E402
from redrive_kit.conformance.fence import TestFence  # noqa: E402
from redrive_kit.conformance.figures import TestFigures, TestOverdue  # noqa: E402
from redrive_kit.conformance.holds import TestHolds, TestTaskHolds  # noqa: E402
from redrive_kit.conformance.invariants import TestInvariants  # noqa: E402
from redrive_kit.conformance.joins import TestJoins  # noqa: E402
from redrive_kit.conformance.landings import TestLandings  # noqa: E402
from redrive_kit.conformance.ledger import TestLedger  # noqa: E402
from redrive_kit.conformance.limits import TestLimits  # noqa: E402
from redrive_kit.conformance.liveness import TestLiveness  # noqa: E402
from redrive_kit.conformance.members import TestMembers  # noqa: E402
from redrive_kit.conformance.operators import TestOperators  # noqa: E402
from redrive_kit.conformance.pages import TestPages  # noqa: E402
from redrive_kit.conformance.reactions import TestReactions  # noqa: E402
from redrive_kit.conformance.reads import TestReads  # noqa: E402
from redrive_kit.conformance.records import TestAudit, TestRecords  # noqa: E402
from redrive_kit.conformance.recover import TestRecover  # noqa: E402
from redrive_kit.conformance.renew import TestRenew  # noqa: E402
from redrive_kit.conformance.schedules import TestSchedules  # noqa: E402
from redrive_kit.conformance.series import TestSeries  # noqa: E402
from redrive_kit.conformance.settle import TestSettle  # noqa: E402
from redrive_kit.conformance.tick import TestTick  # noqa: E402
from redrive_kit.conformance.totals import TestTotals  # noqa: E402
from redrive_kit.conformance.transaction import TestTransaction  # noqa: E402
from redrive_kit.conformance.upkeep import TestUpkeep  # noqa: E402
from redrive_kit.conformance.wakes import TestWakes  # noqa: E402

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
