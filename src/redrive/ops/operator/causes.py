"""Causes of failure: list, show, annotate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.ops import causes
from redrive.ops.access import Role
from redrive.ops.causes import Breakdown, Cause, CausePage
from redrive.ops.operator.session import Service


class CauseService(Service):
    async def list(
        self,
        which: FailureFilter = EVERY_FAILURE,
        *,
        limit: int = 50,
        status: str | None = None,
        order: str | None = None,
        before: str | None = None,
    ) -> CausePage:
        """Returns causes by which tasks that match are failed now, those by which most are first, with how many they
        are and their share of all. ``order``: failed, count (failures ever), first, last or trend. ``before`` is the
        ``next_before`` of the page before. Causes by which nothing is failed have the status ``quiet``."""
        self._session.may(Role.VIEWER)
        meant = which if which == EVERY_FAILURE else await self._session.known(which)
        return await causes.list_causes(self._store, meant, limit=limit, status=status, order=order, before=before)

    async def show(self, fingerprint: str) -> Cause:
        """Returns one, also by the beginning of its fingerprint, if only one begins so."""
        self._session.may(Role.VIEWER)
        return await causes.show(self._store, fingerprint)

    async def break_down(self, fingerprint: str) -> Breakdown:
        """Returns what the tasks that are failed by a cause now have in common: peers (for operators), scopes, groups
        and builds, of the last thousand of them."""
        self._session.may(Role.VIEWER)
        found = await causes.break_down(self._store, fingerprint)
        return found if self._session.sight.whole else replace(found, peer={})

    async def annotate(self, fingerprint: str, reason: str | None = None, **said: Any) -> Cause:
        """Sets ``note``, ``owner``, ``muted_until`` (a datetime) or ``resolved`` (a bool); None takes one back."""
        who = self._session.may(Role.OPERATOR)
        return await causes.annotate(self._store, fingerprint, actor=who, reason=reason, **said)
