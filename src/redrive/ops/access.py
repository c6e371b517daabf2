"""Roles and access tokens, which are kept as hashes. What each role sees is in ``redrive.ops.views``."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from redrive.errors import (
    ChangedMeanwhile,
    ConfigError,
    InvalidInput,
    InvalidTransition,
    RedriveError,
    StoreError,
    TokenUnknown,
)
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_name
from redrive.ops.actions import check_actor
from redrive.ops.people import person

COLLECTION = "token"
ACCESS, ANY_TOKENS = "access", "tokens"  # the document that says that there was a token: it outlives all of them
ACTIVE, REVOKED = "active", "revoked"
SCHEME = "rdt"
READ_AT_ONCE = 1000
RESERVED_NAMES = frozenset(
    {"redrive", "system", "app", "api", "cli", "http", "console", "worker", "schedule", "schedules", "cron", "nobody"}
)


class Role(IntEnum):
    """Viewer, operator, admin: each may do what the one before may."""

    VIEWER = 1  # look, at what is safe to show
    OPERATOR = 2  # act on tasks, see what they carry, agree to what others ask for
    ADMIN = 3  # change limits, remove for good (prune, purge, erase), tokens

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(slots=True, frozen=True)
class Caller:
    """Who asks, and in which role. Without tokens, on this machine only, everybody is an administrator and gives their
    own name."""

    name: str
    role: Role
    token_id: str | None = None


def error_text_for(error: RedriveError, role: Role | None) -> tuple[str, str | None]:
    """Returns the message of an error and its hint, for somebody of this role, or for whoever is not known (None).
    What a store says of itself names where it is, which is for those who may act."""
    if isinstance(error, StoreError | ConfigError) and (role is None or role < Role.OPERATOR):
        return "the store cannot be used right now", "try again later; the server's log says more"
    return error.message, error.hint


@dataclass(slots=True, frozen=True)
class NewToken:
    """A token that was just made; ``secret`` is shown once, and never again."""

    record: Record
    secret: str


def refuse_reserved(name: str) -> str:
    """Refuses names that redrive, an application or nobody in particular has in the audit log: no person has them."""
    if person(name) in RESERVED_NAMES or person(name).startswith("redrive:"):
        raise InvalidInput(f"{name!r} is a name that redrive itself uses in the audit log", hint="use a person's name")
    return name


def parse_role(text: str | Role) -> Role:
    if isinstance(text, Role):
        return text
    try:
        return Role[text.strip().upper()]
    except KeyError:
        raise InvalidInput(f"{text!r} is no role", hint="viewer, operator or admin") from None


async def create(store: Store, name: str, role: Role, *, actor: str, days: float | None = None) -> NewToken:
    """Makes a token; ``name`` is who acts, in the audit log."""
    who = check_actor(actor)
    refuse_reserved(check_name(name, "token name"))
    if days is not None and not 0 < days <= 36_500:
        raise InvalidInput(f"a token is valid for more than 0 and at most 36500 days, not {days:g}")
    # As people read them: two tokens of one person would be two persons to an approval.
    active = await _tokens(store, (ACTIVE,))
    if any(person(r.body["name"]) == person(name) for r in active):
        raise InvalidInput(f"there is an active token named {name!r}", hint="revoke it first, or use another name")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    body = {"name": name, "role": role.label, "hash": _hash(secret), "created_by": who, "valid_days": days}
    row = Audit(
        who,
        "TOKEN_CREATE",
        None,
        None,
        None,
        None,
        {"name": name, "role": role.label, "valid_days": days},
        target=f"token:{token_id}",
    )
    puts = [Put(COLLECTION, token_id, body, state=ACTIVE)]
    first = [] if await store.record(ACCESS, ANY_TOKENS) else [Put(ACCESS, ANY_TOKENS, {})]
    try:
        await store.apply(Commit(puts=[*puts, *first], audits=[row]))
    except ChangedMeanwhile:  # two first ones at once
        if not first:
            raise
        await store.apply(Commit(puts=puts, audits=[row]))
    return NewToken(await _token(store, token_id), f"{SCHEME}_{token_id}_{secret}")


async def revoke(store: Store, token_id: str, *, actor: str, reason: str | None = None) -> Record:
    who = check_actor(actor)
    record = await _token(store, token_id)
    if record.state == REVOKED:
        raise InvalidTransition(f"token {token_id} is revoked already")
    row = Audit(
        who,
        "TOKEN_REVOKE",
        reason,
        None,
        None,
        {"name": record.body["name"]},
        {"state": REVOKED},
        target=f"token:{token_id}",
    )
    put = Put(COLLECTION, token_id, record.body, record.version, REVOKED)
    await store.apply(Commit(puts=[put], audits=[row]))
    return await _token(store, token_id)


async def list_tokens(store: Store) -> list[Record]:
    return await _tokens(store)


async def _tokens(store: Store, states: tuple[str, ...] = ()) -> list[Record]:
    """Returns all of them, newest first."""
    found = await store.records(COLLECTION, states=states, limit=READ_AT_ONCE)
    while (
        more := await store.records(COLLECTION, states=states, limit=READ_AT_ONCE, before=found[-1].seq)
        if found
        else []
    ):
        found += more
    return found


async def any_token(store: Store) -> bool:
    """True if there ever was a token: that the last one is revoked, or gone, must not let everybody in."""
    return bool(await store.records(COLLECTION, limit=1)) or await store.record(ACCESS, ANY_TOKENS) is not None


async def check(store: Store, secret: str) -> Caller | None:
    """Returns whose secret this is, or None. As quick for a wrong one as for the right one."""
    parts = secret.split("_", 2)
    known = len(parts) == 3 and parts[0] == SCHEME and re.fullmatch(r"[0-9a-f]{12}", parts[1]) is not None
    record = await store.record(COLLECTION, parts[1]) if known else None
    given = _hash(parts[2] if known else secret)
    right = hmac.compare_digest(given, record.body["hash"] if record is not None else _hash(""))
    return await _caller(store, record) if record is not None and right else None


async def owner(store: Store, token_id: str) -> Caller | None:
    """Returns who acts by a token; None when it is revoked, expired or gone."""
    record = await store.record(COLLECTION, token_id)
    return None if record is None else await _caller(store, record)


async def _caller(store: Store, record: Record) -> Caller | None:
    if record.state != ACTIVE or await _expired(store, record):
        return None
    return Caller(record.body["name"], Role[record.body["role"].upper()], record.id)


def _hash(secret: str) -> str:
    # A random secret of 256 bits needs no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


async def _token(store: Store, token_id: str) -> Record:
    record = await store.record(COLLECTION, token_id)
    if record is None:
        raise TokenUnknown(f"there is no token {token_id!r}", hint="by its id: redrive tokens lists them")
    return record


def expires_at(record: Record) -> datetime | None:
    days = record.body["valid_days"]
    return None if days is None else record.created_at + timedelta(days=days)


async def _expired(store: Store, record: Record) -> bool:
    until = expires_at(record)
    return until is not None and until <= await store.now()
