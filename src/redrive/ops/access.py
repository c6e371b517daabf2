"""Who may do what (O11): tokens with roles, kept as hashes; and what a viewer does not get to see."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any
from urllib.parse import quote, quote_plus

from redrive.errors import InvalidInput, InvalidTransition, TokenUnknown
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.failure import MAX_MESSAGE
from redrive.kernel.records import Put, Record
from redrive.kernel.store import Store
from redrive.kernel.task import check_name
from redrive.ops.actions import check_actor

COLLECTION = "token"
ACTIVE, REVOKED = "active", "revoked"
PREFIX = "rdt"
RESERVED = frozenset(
    {"redrive", "system", "app", "api", "cli", "http", "console", "worker", "schedule", "schedules", "cron", "nobody"}
)
MASK = "•••"
SHORTEST_SECRET = 4
MOST_SECRETS, CUT_TRIES = 100, 20


class Role(IntEnum):
    """Each may do what the one before may."""

    VIEWER = 1  # look; payloads are masked
    OPERATOR = 2  # retry, cancel, pause, annotate, ask for approval, approve
    ADMIN = 3  # limits, prune, purge

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(slots=True, frozen=True)
class Caller:
    """Who asks. Without tokens, on this machine only, everybody is an administrator and says who he is."""

    name: str
    role: Role
    token_id: str | None = None


@dataclass(slots=True, frozen=True)
class NewToken:
    """``secret`` is shown once, and never again."""

    record: Record
    secret: str


def refuse_reserved(name: str) -> str:
    """Names under which redrive, an application or nobody in particular is in the audit log: no person has them."""
    if name.casefold() in RESERVED or name.casefold().startswith("redrive:"):
        raise InvalidInput(f"{name!r} is a name that redrive itself uses in the audit log", hint="use a person's name")
    return name


def parse_role(text: str) -> Role:
    try:
        return Role[text.strip().upper()]
    except KeyError:
        raise InvalidInput(f"{text!r} is no role", hint="viewer, operator or admin") from None


async def create(store: Store, name: str, role: Role, *, actor: str, days: float | None = None) -> NewToken:
    """``name`` is who acts, in the audit log."""
    who = check_actor(actor)
    refuse_reserved(check_name(name, "token name"))
    if days is not None and not 0 < days <= 36_500:
        raise InvalidInput(f"a token is valid for more than 0 and at most 36500 days, not {days:g}")
    # As people read them: two tokens of one person would be two persons to an approval.
    active = await store.records(COLLECTION, states=(ACTIVE,), limit=1000)
    if any(r.body["name"].casefold() == name.casefold() for r in active):
        raise InvalidInput(f"there is an active token named {name!r}", hint="revoke it first, or use another name")
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    body = {"name": name, "role": role.label, "hash": _hash(secret), "created_by": who, "valid_days": days}
    row = Audit(
        who, "TOKEN_CREATE", None, None, None, None, {"name": name, "role": role.label, "valid_days": days},
        target=f"token:{token_id}",
    )  # fmt: skip
    await store.apply(Commit(puts=[Put(COLLECTION, token_id, body, state=ACTIVE)], audits=[row]))
    return NewToken(await _token(store, token_id), f"{PREFIX}_{token_id}_{secret}")


async def revoke(store: Store, token_id: str, *, actor: str, reason: str | None = None) -> Record:
    who = check_actor(actor)
    record = await _token(store, token_id)
    if record.state == REVOKED:
        raise InvalidTransition(f"token {token_id} is revoked already")
    row = Audit(
        who, "TOKEN_REVOKE", reason, None, None, {"name": record.body["name"]}, {"state": REVOKED},
        target=f"token:{token_id}",
    )  # fmt: skip
    put = Put(COLLECTION, token_id, record.body, record.version, REVOKED)
    await store.apply(Commit(puts=[put], audits=[row]))
    return await _token(store, token_id)


async def list_tokens(store: Store) -> list[Record]:
    return await store.records(COLLECTION, limit=1000)


async def any_token(store: Store) -> bool:
    """Was there ever one? Revoking the last one must not open the door."""
    return bool(await store.records(COLLECTION, limit=1))


async def check(store: Store, secret: str) -> Caller | None:
    """Whose secret this is; None when nobody's. As quick for a wrong one as for the right one."""
    parts = secret.split("_", 2)
    known = len(parts) == 3 and parts[0] == PREFIX and re.fullmatch(r"[0-9a-f]{12}", parts[1]) is not None
    record = await store.record(COLLECTION, parts[1]) if known else None
    given = _hash(parts[2] if known else secret)
    right = hmac.compare_digest(given, record.body["hash"] if record is not None else _hash(""))
    if record is None or not right or record.state != ACTIVE or await _expired(store, record):
        return None
    return Caller(record.body["name"], Role[record.body["role"].upper()], record.id)


def masked(value: Any, fields: Sequence[str]) -> Any:
    """A payload as a viewer sees it: fields whose names contain one of these, at any depth, are covered."""
    hidden = _plain_names(fields)

    def cover(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: MASK if _hidden(key, hidden) else cover(inner) for key, inner in part.items()}
        return [cover(inner) for inner in part] if isinstance(part, list) else part

    return MASK if "*" in fields and value is not None else cover(value)


def covered(texts: Sequence[str], payload: Any, fields: Sequence[str]) -> list[str]:
    """Messages as a viewer sees them: what is covered in the payload is covered where they quote it, also escaped or
    in an address. A payload with very many secrets says nothing at all."""
    found = _secrets_in(payload, fields)
    if len(found) > MOST_SECRETS:
        return [MASK] * len(texts)
    if not found:
        return list(texts)
    forms = {form for secret in found for form in _forms(secret) if len(form) >= SHORTEST_SECRET}
    return [_cover(text, forms) for text in texts]


def scrubbed(value: Any, payload: Any, fields: Sequence[str]) -> Any:
    """The same for every text in a document."""
    if isinstance(value, dict):
        return {key: scrubbed(inner, payload, fields) for key, inner in value.items()}
    if isinstance(value, list):
        return [scrubbed(inner, payload, fields) for inner in value]
    return covered([value], payload, fields)[0] if isinstance(value, str) else value


def _cover(text: str, forms: set[str]) -> str:
    """Every place where one of these stands, also where they overlap."""
    out, done = list[str](), 0
    for begin, end in sorted(span for form in forms for span in _spans(text, form)):
        if begin >= done:
            out += [text[done:begin], MASK]
        done = max(done, end)
    return "".join([*out, text[done:]])


def _spans(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Where it stands; in a message that is as long as they are kept also its beginning, at the very end."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + len(form))
    if len(text) >= MAX_MESSAGE:
        start, tries = text.rfind(form[:SHORTEST_SECRET]), CUT_TRIES
        while start >= 0 and tries and len(text) - start < len(form):
            if form.startswith(text[start:]):
                yield start, len(text)
            start, tries = text.rfind(form[:SHORTEST_SECRET], 0, start + SHORTEST_SECRET - 1), tries - 1


def _forms(secret: str) -> set[str]:
    return {
        form for plain in (secret, secret.strip())
        for form in (plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1],
                     quote(plain), quote(plain, safe=""), quote_plus(plain))
    }  # fmt: skip


def _secrets_in(value: Any, fields: Sequence[str]) -> set[str]:
    """What is covered in a payload and long enough to be found again in a message; a few more than the most are
    enough to know."""
    hidden, found = _plain_names(fields), set[str]()

    def look(part: Any, covered: bool) -> None:
        if len(found) > MOST_SECRETS:
            return
        if isinstance(part, dict):
            for key, inner in part.items():
                if covered:
                    look(key, True)  # {"tokens": {"sk-…": 1}}
                look(inner, covered or _hidden(key, hidden))
        elif isinstance(part, list):
            for inner in part:
                look(inner, covered)
        elif covered and len(str(part)) >= SHORTEST_SECRET:
            found.add(str(part))

    look(value, "*" in fields)
    return found


def _plain_names(fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(_plain_name(name) for name in fields if name != "*")


def _plain_name(name: object) -> str:
    """``accessToken``, ``access-token`` and ``ACCESS_TOKEN`` are one."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _hidden(key: object, hidden: tuple[str, ...]) -> bool:
    plain = _plain_name(key)
    return any(name in plain for name in hidden)


def _hash(secret: str) -> str:
    # A random secret of 256 bits needs no slow hash: there is nothing to guess.
    return hashlib.sha256(secret.encode()).hexdigest()


async def _token(store: Store, token_id: str) -> Record:
    record = await store.record(COLLECTION, token_id)
    if record is None:
        raise TokenUnknown(f"there is no token {token_id!r}", hint="redrive tokens lists them")
    return record


def expires_at(record: Record) -> datetime | None:
    days = record.body["valid_days"]
    return None if days is None else record.created_at + timedelta(days=days)


async def _expired(store: Store, record: Record) -> bool:
    until = expires_at(record)
    return until is not None and until <= await store.now()
