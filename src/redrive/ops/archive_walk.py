"""Reads the archive in step with the chain of the audit log: it may be larger than memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from redrive.errors import StoreError
from redrive.kernel.task import AuditRow
from redrive.ops.audit_archive import Archive
from redrive.ops.audit_claims import MALFORMED_CLAIM, Claim
from redrive.ops.audit_rows import SUMMARIES, row_hash


class ArchiveWalk:
    """A position in the archive. ``heard`` and ``erased``: what the rows of the last stretch told of removals, and
    which of them are emptied."""

    def __init__(self, archive: Archive | None, problem: Callable[[str], None]) -> None:
        rows = () if archive is None else archive.read(on_damage=lambda error: problem(error.message))
        self._rows: Iterator[AuditRow] = iter(rows)
        self._problem = problem
        self._next: AuditRow | None = None
        self._begun = False
        self.heard: list[Claim] = []
        self.erased: list[int] = []

    def rows_up_to(self, last: int | None) -> dict[int, set[str]]:
        """Returns hashes of the rows up to this one, from where the last call ended; of a number in more than one
        version all of them."""
        found: dict[int, set[str]] = {}
        self.heard, self.erased = [], []
        if not self._begun:
            self._advance()
        while self._next is not None and (last is None or self._next.id <= last):
            found.setdefault(self._next.id, set()).add(row_hash(self._next))
            self._hear(self._next)
            self._advance()
            if last is None and len(found) >= 1000:
                break
        return found

    def _hear(self, row: AuditRow) -> None:
        if row.erased is not None:
            self.erased.append(row.id)
        if row.action in SUMMARIES:
            with contextlib.suppress(*MALFORMED_CLAIM):  # whether it is what was sealed is seen elsewhere
                self.heard.append(Claim.of(row))

    def _advance(self) -> None:
        self._begun = True
        try:
            self._next = next(self._rows, None)
        except StoreError as error:  # the rest of the archive cannot be read; the chain still can
            self._problem(error.message)
            self._next = None
