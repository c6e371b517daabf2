"""Who may come in over HTTP: tokens and console sessions, which live on the default connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.ops.access import Caller
    from redrive.ops.sign_in import Limits
    from redrive.settings import Settings


class Access:
    """Checks secrets against the store: ``await app.access.caller(token)``."""

    def __init__(self, settings: Settings, store: Callable[[], Awaitable[Store]]) -> None:
        self._settings = settings
        self._store = store

    async def caller(self, secret: str) -> Caller | None:
        """Returns whose token this is; None when nobody's."""
        from redrive.ops import access

        return await access.check(await self._store(), secret)

    async def has_tokens(self) -> bool:
        """Returns whether there ever was a token: revoking the last one must not let everybody in."""
        from redrive.ops import access

        return await access.any_token(await self._store())

    async def sign_in(self, token: str) -> str | None:
        """Returns the secret of a new console session for whoever has this token; None when the token is nobody's."""
        from redrive.ops import sign_in as sessions

        return await sessions.sign_in(await self._store(), token, self._limits)

    async def signed_in(self, secret: str, *, seen: bool = True) -> Caller | None:
        """Returns who is signed in by this secret; None when nobody is, any more. ``seen``: this keeps it from ending
        as idle."""
        from redrive.ops import sign_in as sessions

        return await sessions.check(await self._store(), secret, self._limits, seen=seen)

    async def sign_out(self, secret: str) -> None:
        from redrive.ops import sign_in as sessions

        await sessions.sign_out(await self._store(), secret)

    @property
    def _limits(self) -> Limits:
        from redrive.ops.sign_in import Limits

        idle, longest = self._settings.console_idle_minutes, self._settings.console_session_hours
        return Limits(timedelta(minutes=idle), timedelta(hours=longest))
