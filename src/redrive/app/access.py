"""Who may come in over HTTP: tokens and console sessions, which live on the default connection. Imported by those who
serve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from redrive.kernel.ports.store import Store
from redrive.ops import access, sign_in
from redrive.ops.access import Caller
from redrive.settings import Settings


class Access:
    """Checks secrets against the store: ``await app.access.caller(token)``. ``several``: there are other connections to
    look at while this store is away, so whom it has let in lately is let in still."""

    def __init__(self, settings: Settings, store: Callable[[], Awaitable[Store]], *, several: bool = False) -> None:
        idle, longest = settings.console_idle_minutes, settings.console_session_hours
        self._limits = sign_in.Limits(timedelta(minutes=idle), timedelta(hours=longest))
        self._store = store
        self._several = several
        self._known = sign_in.KnownCallers()

    async def _checked(self, secret: str, ask: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        return await (self._known.check(secret, ask) if self._several else ask())

    async def caller(self, secret: str) -> Caller | None:
        """Returns whose token this is; None when nobody's."""

        async def ask() -> Caller | None:
            return await access.check(await self._store(), secret)

        return await self._checked(secret, ask)

    async def has_tokens(self) -> bool:
        """Returns whether there ever was a token: revoking the last one must not let everybody in."""

        async def ask() -> bool:
            return await access.any_token(await self._store())

        return await (self._known.has_tokens(ask) if self._several else ask())

    async def sign_in(self, token: str) -> str | None:
        """Returns the secret of a new console session for whoever has this token; None when the token is nobody's."""
        return await sign_in.sign_in(await self._store(), token, self._limits)

    async def signed_in(self, secret: str, *, seen: bool = True) -> Caller | None:
        """Returns who is signed in by this secret; None when nobody is, any more. ``seen``: this keeps it from ending
        as idle."""

        async def ask() -> Caller | None:
            return await sign_in.check(await self._store(), secret, self._limits, seen=seen)

        return await self._checked(secret, ask)

    async def sign_out(self, secret: str) -> None:
        self._known.forget(secret)
        await sign_in.sign_out(await self._store(), secret)
