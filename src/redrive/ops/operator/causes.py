"""Causes of failure: list, show, annotate."""

from __future__ import annotations

import builtins
from typing import Any

from redrive.ops import causes
from redrive.ops.access import Role
from redrive.ops.causes import Cause
from redrive.ops.operator.session import Service


class CauseService(Service):
    async def list(
        self, *, limit: int = 50, status: str | None = None, before: str | None = None
    ) -> builtins.list[Cause]:
        """Returns causes, those that were seen last first; ``before`` is the ``place`` of the last one seen."""
        self._session.may(Role.VIEWER)
        return await causes.list_causes(self._store, limit=limit, status=status, before=before)

    async def show(self, fingerprint: str) -> Cause:
        """Returns one, also by the beginning of its fingerprint, if only one begins so."""
        self._session.may(Role.VIEWER)
        return await causes.show(self._store, fingerprint)

    async def annotate(self, fingerprint: str, reason: str | None = None, **said: Any) -> Cause:
        """Sets ``note``, ``owner``, ``muted_until`` (a datetime) or ``resolved`` (a bool); None takes one back."""
        who = self._session.may(Role.OPERATOR)
        return await causes.annotate(self._store, fingerprint, actor=who, reason=reason, **said)
