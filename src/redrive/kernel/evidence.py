"""Reads what exceptions of other libraries carry: status, errno, SQLSTATE, code, headers, and what they come from.

No library is imported for it. Attributes are somebody else's code: reading one may raise anything.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from redrive.errors import RedriveError

MAX_CHAIN = 20
Marks = dict[str, str | int]

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{1,80}")
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
# Redis and its kin answer with a word in capitals first.
_SHOUTED = re.compile(r"([A-Z][A-Z0-9_]{2,30})(?: |$)")
# SQLite has one code for all that is wrong with a statement, and says the rest in words.
_SQLITE_SAID = re.compile(
    r"no such (?:table|column|function|index|view|trigger|module|savepoint|collation|database|vfs)\b"
    r"|syntax error|already exists|no column named|incomplete input"
)


def look(holder: Any, name: str) -> Any:
    """Returns an attribute, or None if there is none or reading it raises."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def text_of(error: BaseException, most: int) -> str | None:
    """Returns what an exception says, cut at once: whatever follows would go through all of it. None if it raises."""
    try:
        return str(error)[:most]
    except Exception:
        return None


def chain(error: BaseException) -> list[BaseException]:
    """Yields the exception, then what it came from: what it wraps, its cause or context, and the members of groups."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting and len(found) < MAX_CHAIN:
        one = waiting.pop(0)
        if not any(one is other for other in found):
            found.append(one)
            waiting.extend(wrapped(one))
            origin = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__
            if origin is not None:
                waiting.append(origin)
    return found


def wrapped(error: BaseException) -> Iterator[BaseException]:
    """Returns the exceptions that one carries inside: SQLAlchemy's ``orig``, urllib's ``reason``, aiohttp's
    ``os_error``, groups."""
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions[:MAX_CHAIN]
    for name in ("orig", "reason", "os_error"):
        inner = look(error, name)
        if isinstance(inner, BaseException):
            yield inner
    for inner in error.args[:3]:
        if isinstance(inner, BaseException):
            yield inner


def status(error: BaseException) -> int | None:
    """Returns the HTTP status that the exceptions of httpx, requests, aiohttp, urllib, botocore and others carry."""
    if isinstance(error, RedriveError):  # its status is what we answer, and nobody answered us
        return None
    response = look(error, "response")
    values = [look(holder, name) for holder in (response, error) for name in ("status_code", "status")]
    if isinstance(response, Mapping):
        values.append(_meta(response).get("HTTPStatusCode"))
    if look(error, "hdrs") is not None:  # urllib.error.HTTPError calls it a code
        values.append(look(error, "code"))
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _meta(response: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        meta = response.get("ResponseMetadata")
    except Exception:
        return {}
    return meta if isinstance(meta, Mapping) else {}


def header(error: BaseException, name: str) -> str | None:
    """Returns a header of the response that an exception carries."""
    response = look(error, "response")
    places = [look(response, "headers"), look(error, "headers"), look(error, "hdrs")]
    if isinstance(response, Mapping):
        places.append(_meta(response).get("HTTPHeaders"))
    for headers in places:
        for spelled in (name, name.lower()):
            value = _get(headers, spelled)
            if value is not None:
                return str(value)[:100]
    return None


def _get(headers: Any, name: str) -> Any:
    try:
        return headers.get(name)
    except Exception:  # None, or somebody else's mapping
        return None


def sqlstate(error: BaseException) -> str | None:
    for name in ("sqlstate", "pgcode"):
        value = look(error, name)
        if isinstance(value, str) and _SQLSTATE.fullmatch(value):
            return value
    return None


def errno(error: BaseException) -> int | None:
    """Returns the errno of an OSError; TLS has numbers of its own, which say less than its reasons."""
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return None
    value = look(error, "errno")
    return value if isinstance(value, int) else None


def provider_code(error: BaseException) -> str | None:
    """Returns a provider's own name for what went wrong: botocore, OpenAI-style clients, gRPC, SQLite, Redis."""
    response = look(error, "response")
    if isinstance(response, Mapping):
        try:
            return _code((response.get("Error") or {}).get("Code"))
        except Exception:
            return None
    package = type(error).__module__.partition(".")[0]
    found = _code(look(error, "sqlite_errorname"))
    if found == "SQLITE_ERROR" and (said := _SQLITE_SAID.search(str(error)[:500])):
        found = f"{found}.{said[0].replace(' ', '_')}"
    if package in ("aiohttp", "sqlalchemy"):  # the one warns about it, the other's is a page of its manual
        return found
    found = found or _code(look(error, "code"))
    if found is None and callable(method := look(error, "code")):
        try:
            found = _code(look(method(), "name"))
        except Exception:
            found = None
    if found is None and package in ("redis", "valkey"):
        shouted = _SHOUTED.match(str(error.args[0])[:40]) if error.args else None
        found = shouted[1] if shouted else None
    return found


def _code(value: object) -> str | None:
    # A member of an enumeration by its value, not as its class writes it.
    return str.__str__(value) if isinstance(value, str) and _CODE.fullmatch(value) else None
