"""Looking at a store: the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.kernel.audit import AuditFilter
    from redrive.kernel.task import AuditRow


class AuditReads(Protocol):
    """The audit log."""

    async def audit(
        self,
        which: AuditFilter,
        *,
        limit: int,
        offset: int = 0,
        before: int | None = None,
        after: int | None = None,
        documents: int | None = None,
    ) -> list[AuditRow]:
        """Returns audit rows newest first, from ``before`` on; with ``after`` oldest first, beyond it."""

    async def count_audit(self, which: AuditFilter) -> int: ...
