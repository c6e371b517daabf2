# ruff: noqa: F401 (these are for others)
"""What holds of a store as a whole: the invariants of the design, and what each verb costs."""

from __future__ import annotations

from redrive_kit.conformance.cost import TestCost
from redrive_kit.conformance.invariants import TestInvariants

__all__ = [name for name in globals() if name.startswith("Test")]
