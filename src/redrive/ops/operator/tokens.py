"""Access tokens of the HTTP API: list, create, revoke."""

from __future__ import annotations

import builtins

from redrive.kernel.records import Record
from redrive.ops import access
from redrive.ops.access import NewToken, Role
from redrive.ops.operator.session import Service


class TokenService(Service):
    async def list(self) -> builtins.list[Record]:
        self._session.may(Role.ADMIN)
        return await access.list_tokens(self._store)

    async def any(self) -> bool:
        """Returns whether there ever was one."""
        return await access.any_token(self._store)

    async def create(self, name: str, role: Role, *, days: float | None = None) -> NewToken:
        """Makes a token; ``name`` is who acts, in the audit log. The secret is returned once."""
        who = self._session.may(Role.ADMIN)
        return await access.create(self._store, name, role, actor=who, days=days)

    async def revoke(self, token_id: str, reason: str | None = None) -> Record:
        """Revokes a token, at once and for good."""
        who = self._session.may(Role.ADMIN)
        return await access.revoke(self._store, token_id, actor=who, reason=reason)
