"""Console sessions: a browser that was given a token's secret once, and acts as that token's owner for a while.

The browser keeps a secret of its own, never the token; the store keeps its hash. A session ends with its token: each
request looks at both.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ChangedMeanwhile, StoreUnavailable
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.ops import access
from redrive.ops.access import Caller

COLLECTION = "session"
ACTIVE, ENDED = "active", "ended"
PREFIX = "rds"
WRITTEN_EVERY = timedelta(minutes=1)  # being seen is written down no more often than this
_COOKIE = re.compile(rf"{PREFIX}_([0-9a-f]{{24}})_([A-Za-z0-9_-]{{43}})")


@dataclass(slots=True, frozen=True)
class Limits:
    """How long a session lasts: ``idle`` without a request, ``longest`` whatever is done with it."""

    idle: timedelta = timedelta(hours=2)
    longest: timedelta = timedelta(hours=24)


async def sign_in(store: Store, token: str, limits: Limits) -> str | None:
    """Returns the secret of a new session for whoever has this token; None when the token is nobody's."""
    caller = await access.check(store, token)
    if caller is None or caller.token_id is None:
        return None
    session_id, secret = secrets.token_hex(12), secrets.token_urlsafe(32)
    body = {"hash": _hash(secret), "token": caller.token_id, "name": caller.name}
    put = Put(COLLECTION, session_id, body, state=ACTIVE, keep=limits.longest.total_seconds())
    row = Audit(caller.name, "CONSOLE_SIGN_IN", target=f"token:{caller.token_id}")
    await store.apply(Commit(puts=[put], audits=[row]))
    return f"{PREFIX}_{session_id}_{secret}"


async def check(store: Store, secret: str, limits: Limits, *, seen: bool = True) -> Caller | None:
    """Returns who is signed in by this secret; None when nobody is, any more. ``seen``: somebody is there, so the
    session is not idle."""
    record = await _session(store, secret)
    if record is None or record.state != ACTIVE:
        return None
    now = await store.now()
    if now - record.created_at >= limits.longest or now - record.updated_at >= limits.idle:
        return None
    caller = await access.owner(store, record.body["token"])
    if seen and caller is not None and now - record.updated_at >= WRITTEN_EVERY:
        left = limits.longest - (now - record.created_at)
        with suppress(ChangedMeanwhile):  # another request of the same browser has written it
            await store.apply(Commit(puts=[_last_use(record, left)]))
    return caller


async def sign_out(store: Store, secret: str) -> None:
    """Ends a session; nothing happens when it has ended already."""
    record = await _session(store, secret)
    if record is None or record.state != ACTIVE:
        return
    put = Put(COLLECTION, record.id, record.body, record.version, ENDED, keep=0.0)
    row = Audit(record.body["name"], "CONSOLE_SIGN_OUT", target=f"token:{record.body['token']}")
    await store.apply(Commit(puts=[put], audits=[row]))


def _last_use(record: Record, left: timedelta) -> Put:
    return Put(COLLECTION, record.id, record.body, record.version, ACTIVE, keep=max(left.total_seconds(), 0.0))


async def _session(store: Store, secret: str) -> Record | None:
    parts = _COOKIE.fullmatch(secret)
    if parts is None:
        return None
    record = await store.record(COLLECTION, parts[1])
    right = hmac.compare_digest(_hash(parts[2]), record.body["hash"] if record is not None else _hash(""))
    return record if right else None


def _hash(secret: str) -> str:
    # A random secret of 256 bits needs no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


# -- callers that a process has verified lately ------------------------------------------------------------------------


KNOWN_FOR_S = 600.0
ANSWER_S = 3.0  # a store that hangs is away, for whoever is known
MOST_KNOWN = 1000


class KnownCallers:
    """Remembers by a hash of the secret who was let in, with the role of then, since the store last said so."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()
        self._had_tokens = False

    async def has_tokens(self, ask: Callable[[], Awaitable[bool]]) -> bool:
        """Returns what the store answers; where it does not, and there were tokens once: a closed door stays closed,
        and an open one is not held open."""
        try:
            async with asyncio.timeout(ANSWER_S if self._had_tokens else None):
                self._had_tokens = await ask()
        except (StoreUnavailable, TimeoutError):
            if not self._had_tokens:
                raise
        return self._had_tokens

    async def check(self, secret: str, ask: Callable[[], Awaitable[Caller | None]]) -> Caller | None:
        """Returns what the store answers; where it does not, who had this secret when it last did."""
        key = hashlib.sha256(secret.encode()).hexdigest()
        known = self._of(key)
        try:
            async with asyncio.timeout(None if known is None else ANSWER_S):
                caller = await ask()
        except (StoreUnavailable, TimeoutError):
            if known is None:
                raise
            return known
        self._note(key, caller)
        return caller

    def forget(self, secret: str) -> None:
        self._known.pop(hashlib.sha256(secret.encode()).hexdigest(), None)

    def _of(self, key: str) -> Caller | None:
        at, caller = self._known.get(key, (0.0, None))
        return caller if caller is not None and self._clock() - at < KNOWN_FOR_S else None

    def _note(self, key: str, caller: Caller | None) -> None:
        self._known.pop(key, None)  # revoked or ended: not in an outage either
        if caller is not None:
            self._known[key] = self._clock(), caller
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
