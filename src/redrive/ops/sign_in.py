"""Console sessions: a browser that was given a token's secret once, and acts as that token's owner for a while.

The browser keeps a secret of its own, never the token; the store keeps its hash. A session ends with its token: each
request looks at both.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from redrive.errors import ChangedMeanwhile
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
            await store.apply(Commit(puts=[_seen(record, left)]))
    return caller


async def sign_out(store: Store, secret: str) -> None:
    """Ends a session; nothing happens when it has ended already."""
    record = await _session(store, secret)
    if record is None or record.state != ACTIVE:
        return
    put = Put(COLLECTION, record.id, record.body, record.version, ENDED, keep=0.0)
    row = Audit(record.body["name"], "CONSOLE_SIGN_OUT", target=f"token:{record.body['token']}")
    await store.apply(Commit(puts=[put], audits=[row]))


def _seen(record: Record, left: timedelta) -> Put:
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
