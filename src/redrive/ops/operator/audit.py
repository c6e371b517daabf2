"""The audit log: query, export, prune, verify."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.ops import audit, audit_verify, views
from redrive.ops.access import Role
from redrive.ops.audit_archive import Archive, archive_at
from redrive.ops.operator.session import Service


class AuditService(Service):
    async def query(
        self, which: AuditFilter = audit.EVERY_ROW, *, page: int = 1, page_size: int = 50, before: int | None = None
    ) -> audit.Page:
        """Returns rows newest first: by page, or from ``before`` on, which stays stable while rows are added."""
        self._session.may(Role.VIEWER)
        return await audit.query(
            self._store, which, page=page, page_size=page_size, before=before, paged=self._session.paged
        )

    def export(self, which: AuditFilter = audit.EVERY_ROW, form: str = "json") -> AsyncIterator[str]:
        """Yields everything that matches, oldest first, a piece at a time."""
        self._session.may(Role.VIEWER)
        return audit.export(self._store, which, form, partial(views.audit_for, sight=self._session.sight))

    async def prune(
        self,
        which: AuditFilter = audit.EVERY_ROW,
        *,
        older_than_days: float,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> audit.Pruned:
        """Removes old rows, archived first if there is an archive; a summary says who did, how many and which."""
        who = self._session.may(Role.ADMIN)
        return await audit.prune(
            self._store,
            which,
            older_than_days=older_than_days,
            actor=who,
            dry_run=dry_run,
            archive=None if dry_run else self.archive(),
            progress=progress,
        )

    async def verify(
        self, archive: str | None = None, head: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> audit_verify.Verdict:
        """Looks for rows that were changed, removed or added since they were sealed."""
        self._session.may(Role.VIEWER)
        found = self.archive(archive)
        # One that the settings name may not have been written yet; one that was named here has to be there.
        if archive is not None and found is not None and not found.exists:
            raise InvalidInput(f"there is no archive at {found}")
        begun = found if found is not None and found.exists else None
        return await audit_verify.verify(self._store, begun, head, progress)

    def archive(self, place: str | None = None) -> Archive | None:
        """Returns the archive at this place, else that of the settings; None when there is none."""
        self._session.may(Role.VIEWER)
        return archive_at(place or self._session.policy.audit_archive)
