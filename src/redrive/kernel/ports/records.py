"""Looking at a store: small documents: plans, operations, approvals, tokens, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.kernel.records import Record


class RecordReads(Protocol):
    """Small documents: plans, operations, approvals, tokens, notes."""

    async def record(self, collection: str, record_id: str) -> Record | None: ...

    async def records(
        self,
        collection: str,
        *,
        states: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[Record]:
        """Returns documents newest first; ``before`` is the ``seq`` of the last one seen."""
