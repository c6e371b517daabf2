# ruff: noqa: F401 (these are for others)
"""What operators and faces read (``ReadStore``), and what is removed in time."""

from __future__ import annotations

from redrive_kit.conformance.failed import TestCauses, TestFailed, TestGivenUp
from redrive_kit.conformance.figures import TestFigures, TestOverdue, TestTotals
from redrive_kit.conformance.reads import TestPages, TestReads
from redrive_kit.conformance.records import TestAudit
from redrive_kit.conformance.series import TestSeries
from redrive_kit.conformance.upkeep import TestUpkeep

__all__ = [name for name in globals() if name.startswith("Test")]
