"""Causes of failure: list, show, annotate."""

from __future__ import annotations

import builtins
from typing import Any

from redrive.kernel.failed import FailureFilter
from redrive.ops import causes
from redrive.ops.access import Role
from redrive.ops.causes import Cause
from redrive.ops.failed import EVERY_FAILURE
from redrive.ops.filtered_causes import causes_of
from redrive.ops.operator.session import Service


class CauseService(Service):
    async def list(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        limit: int = 50,
        status: str | None = None,
        before: str | None = None,
    ) -> builtins.list[Cause]:
        """Returns causes, those that were seen last first; ``before`` is the ``place`` of the last one seen. With a
        filter, only causes of what is failed now and matches, and how many of these tasks each has."""
        self._session.may(Role.VIEWER)
        if which != EVERY_FAILURE:
            meant = await self._session.known(which)
            return await causes_of(self._store, meant, limit=limit, status=status, before=before)
        return await causes.list_causes(self._store, limit=limit, status=status, before=before)

    async def show(self, fingerprint: str) -> Cause:
        """Returns one, also by the beginning of its fingerprint, if only one begins so."""
        self._session.may(Role.VIEWER)
        return await causes.show(self._store, fingerprint)

    async def annotate(self, fingerprint: str, reason: str | None = None, **said: Any) -> Cause:
        """Sets ``note``, ``owner``, ``muted_until`` (a datetime) or ``resolved`` (a bool); None takes one back."""
        who = self._session.may(Role.OPERATOR)
        return await causes.annotate(self._store, fingerprint, actor=who, reason=reason, **said)
