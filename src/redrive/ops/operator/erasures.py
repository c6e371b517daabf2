"""Erasing what is known about a scope or a task: foreseen, and begun."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from redrive.ops import erase
from redrive.ops.access import Role
from redrive.ops.operator.operations import Begun
from redrive.ops.operator.session import Service


@dataclass(slots=True, frozen=True)
class ErasureForeseen:
    """How many, by place, and why a second operator would have to agree (None: nobody has to)."""

    places: dict[str, int]
    approval: str | None


class ErasureService(Service):
    async def foresee(self, scope: str | None = None, task_id: UUID | None = None) -> ErasureForeseen:
        self._session.may(Role.ADMIN)
        places = await erase.foresee(self._store, scope, task_id, self._session.policy.audit_archive)
        return ErasureForeseen(places, erase.WHY if self._approve else None)

    async def begin(self, scope: str | None = None, task_id: UUID | None = None, *, reason: str | None = None) -> Begun:
        """Begin it, or ask for it: unless approvals are off, a second operator has to agree."""
        who = self._session.may(Role.ADMIN)
        begun = await erase.begin(
            self._store, scope, task_id, actor=who, reason=reason, archive=self._session.policy.audit_archive,
            approve=self._approve,
        )  # fmt: skip
        return Begun(*begun)

    @property
    def _approve(self) -> bool:
        return self._session.policy.approvals_above is not None
