"""Erasures of what is known about a scope or a task: preview and begin."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from redrive.errors import InvalidTransition
from redrive.features import hooks_of
from redrive.kernel.operation import Action
from redrive.kernel.task import check_text
from redrive.ops import approvals
from redrive.ops.access import Role
from redrive.ops.allowance import PlannedAction
from redrive.ops.operations import erase
from redrive.ops.operator.operations import BegunOperation
from redrive.ops.operator.session import Service


@dataclass(slots=True, frozen=True)
class ErasurePreview:
    """How much would be erased, by place, and why a second operator would have to agree (None: nobody has to)."""

    places: dict[str, int]
    approval: str | None


class ErasureService(Service):
    async def preview(self, scope: str | None = None, task_id: UUID | None = None) -> ErasurePreview:
        self._session.may(Role.ADMIN)
        places = await erase.preview(self._store, scope, task_id, self._session.policy.audit_archive)
        action = PlannedAction(Action.ERASE, sum(places.values()), approvals.ERASED_FOR_GOOD)
        return ErasurePreview(places, await self._session.needs(action))

    async def begin(
        self, scope: str | None = None, task_id: UUID | None = None, *, reason: str | None = None
    ) -> BegunOperation:
        """Begins an erasure, or asks for it: unless approvals are off, a second operator has to agree."""
        who = self._session.may(Role.ADMIN)
        await self._refuse_unended(scope)
        begun = await erase.begin(
            self._store,
            scope,
            task_id,
            actor=who,
            reason=reason,
            archive=self._session.policy.audit_archive,
            rule=self._session.policy.alone,
        )
        return BegunOperation(*begun)

    async def _refuse_unended(self, scope: str | None) -> None:
        """Refuses where a feature has something about a scope under way, which would not end without what it holds."""
        for _, guard in hooks_of(self._session.features if scope is not None else (), "erase"):
            held = await guard(self._store, check_text(scope, "scope"))
            if held is not None:
                raise InvalidTransition(f"scope {scope} cannot be erased now: {held.why}", hint=held.hint)
