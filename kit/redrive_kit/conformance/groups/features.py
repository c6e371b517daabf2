# ruff: noqa: F401 (these are for others)
"""What features add to tasks: reactions, joins and their members, a ledger. Each is skipped
where a store says that it cannot do it."""

from __future__ import annotations

from redrive_kit.conformance.joins import TestJoins
from redrive_kit.conformance.ledger import TestLedger
from redrive_kit.conformance.reactions import TestReactions
from redrive_kit.conformance.reads import TestMembers

__all__ = [name for name in globals() if name.startswith("Test")]
