"""Parses PostgreSQL URLs, as libpq, SQLAlchemy and Django's helpers write them.

Taken apart here and not by the driver: a driver's complaint quotes what it could not read, and that may be a password.
No error here quotes anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus, urlencode

from redrive.errors import WrongSetting
from redrive.stores.refusals import refused_url
from redrive.stores.shown import HIDDEN, scheme_of, shown_name, shown_path, shown_scheme

_FORM = "write postgresql://user:password@host:port/database, with / as %2F, @ as %40, ? as %3F, # as %23 in a password"
_PARTS = re.compile(r"[^:]*://([^/?#]*)(?:/([^?#]*))?(?:\?([^#]*))?\Z", re.DOTALL)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[\w.-]*|%2[Ff](?:[\w.-]|%2[Ff])*)(?::(\d{1,5}))?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SESSIONS = ("any", "primary", "standby", "read-write", "read-only", "prefer-standby")
# Read by the driver.
_DRIVERS = {
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "database",
    "passfile",
    "service",
    "servicefile",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslrootcert",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "krbsrvname",
    "gsslib",
    "target_session_attrs",
}
# Settings of the session, which the driver passes on.
_SESSION = {
    "application_name",
    "options",
    "search_path",
    "statement_timeout",
    "lock_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "client_encoding",
    "timezone",
    "datestyle",
    "work_mem",
    "role",
    "jit",
    "default_transaction_isolation",
    "synchronous_commit",
    "client_min_messages",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
    "tcp_user_timeout",
}
# For other drivers; what they say is not for this one.
_IGNORED = {
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "gssencmode",
    "fallback_application_name",
    "requiressl",
}
_OWN = {"pgbouncer", "ssl", "channel_binding"}
_OPTIONS = f"options are: {', '.join(sorted(_DRIVERS | _SESSION | {'pgbouncer'}))}; other settings go into options=-c …"
_KNOWN = _DRIVERS | _SESSION | _IGNORED | _OWN
_SHOWN = {
    "host",
    "port",
    "user",
    "dbname",
    "database",
    "sslmode",
    "ssl",
    "pgbouncer",
    "target_session_attrs",
    "connect_timeout",
    "application_name",
}


@dataclass(slots=True, frozen=True)
class PostgresUrl:
    """Where a database is and how to get in. Only ``shown`` and ``where`` are for others to read."""

    dsn: str = field(repr=False)
    pooled: bool
    shown: str
    where: str
    place: Place | None = None  # None where it names several hosts, or leaves it to others


def parse(url: str) -> PostgresUrl:
    """Takes a URL apart, or refuses it without repeating any of it."""
    found = _PARTS.match(url)
    if found is None or _CONTROL.search(unquote(url)):
        raise _refusal(url, "cannot be understood")
    authority, database, query = found[1], found[2] or "", found[3] or ""
    if "@" in database or "@" in query or "/" in database:
        raise _refusal(url, "has a / or @ where none belongs; a password with one has to be quoted")
    login, at, hosts = authority.rpartition("@")
    user, colon, password = login.partition(":")
    for host in hosts.split(","):
        _check_host(url, host)
    options = _options(url, query)
    credentials = colon.join(quote(unquote(part), safe="") for part in (user, password)) + at
    passed = {name: value for name, value in options.items() if name in _DRIVERS | _SESSION}
    rest = f"?{urlencode(passed)}" if passed else ""
    path = f"/{quote(unquote(database), safe='')}" if database else ""
    dsn = f"postgresql://{credentials}{hosts}{path}{rest}"
    # With several @ nobody can tell where the password ends, only where the driver ends it.
    certain = "@" not in login
    return PostgresUrl(
        dsn,
        options.get("pgbouncer", "0").lower() not in ("0", "false", "no"),
        _shown(url, (user, colon, at), hosts, found[2], query) if certain else shown_scheme(url),
        _where(hosts, database, options) if certain else "the PostgreSQL database of this URL",
        _place(hosts, database, options),
    )


def _check_host(url: str, host: str) -> None:
    found = _HOST.match(host)
    if found is None:
        raise _refusal(url, "has no host and port that can be understood")
    if found[2] and not 0 < int(found[2]) < 65536:
        raise _refusal(url, "has a port that is none")


def _options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, found, value = part.partition("=")
        if not found or name not in _KNOWN:
            raise _refusal(url, "has an option that is not known", hint=_OPTIONS)
        options[name] = unquote_plus(value)
    if "ssl" in options:  # SQLAlchemy's name for it
        said = options.pop("ssl")
        options.setdefault("sslmode", {"true": "require", "false": "disable"}.get(said.lower(), said))
    _check_values(url, options)
    return options


def _check_values(url: str, options: dict[str, str]) -> None:
    for name, allowed in (("sslmode", _SSL_MODES), ("target_session_attrs", _SESSIONS)):
        if name in options and options[name] not in allowed:
            raise _refusal(url, f"has an unknown {name}", hint=f"{name} is one of: {', '.join(allowed)}")
    if not all(port.isascii() and port.isdigit() for port in options.get("port", "1").split(",")):
        raise _refusal(url, "has a port that is none")
    if options.get("channel_binding") == "require":
        raise _refusal(
            url,
            "wants channel_binding=require, which the driver (asyncpg) does not have",
            hint="leave it out, and use sslmode=verify-full",
        )


def _shown(url: str, login: tuple[str, str, str], hosts: str, database: str | None, query: str) -> str:
    scheme, driver = scheme_of(url)
    user, colon, at = login
    name = (shown_name(user) if user else "") + (f":{HIDDEN}" if colon else "") + at
    said = "&".join(_shown_option(*part.partition("=")[::2]) for part in filter(None, query.split("&")))
    path = "" if database is None else "/" + (shown_name(database) if database else "")
    return f"{scheme}{f'+{driver}' if driver else ''}://{name}{hosts}{path}{f'?{said}' if said else ''}"


def _shown_option(name: str, value: str) -> str:
    harmless = name in _SHOWN and "%" not in value and "+" not in value and shown_path(value) != HIDDEN
    return f"{name}={value if harmless else HIDDEN}"


def _where(hosts: str, database: str, options: dict[str, str]) -> str:
    host = shown_path(options["host"]) if "host" in options and not hosts else unquote(hosts) or "localhost"
    name = options.get("dbname") or options.get("database") or unquote(database)
    port = f":{options['port']}" if "port" in options and not hosts else ""
    return f"PostgreSQL database {shown_name(name)!r} at {host}{port}" if name else f"PostgreSQL at {host}{port}"


def _place(hosts: str, database: str, options: dict[str, str]) -> Place | None:
    if "," in hosts or "service" in options:
        return None
    found = _HOST.match(hosts)
    host, port = (found[1], found[2]) if found is not None else ("", None)
    name = options.get("dbname") or options.get("database") or unquote(database)
    return place(unquote(host) or options.get("host"), port or options.get("port"), name)


def _refusal(url: str, why: str, hint: str = _FORM) -> WrongSetting:
    return refused_url(url, why, hint)


# Where a database is: what two ways to get there have to agree in to be taken for the same.

_HERE = {"localhost", "127.0.0.1", "::1", "[::1]"}
_USUAL_PORT = 5432


@dataclass(slots=True, frozen=True)
class Place:
    """Host, port and name of a database. Two that are equal are one database; two that differ may still be, by another
    name of the host or a pooler in between."""

    host: str
    port: int
    database: str


def place(host: str | None, port: int | str | None, database: str | None) -> Place | None:
    """Returns a place; None where it is left to defaults that are not known here."""
    if not database or (host is not None and "," in host):
        return None
    name = (host or "").lower()
    here = not name or name in _HERE or name.startswith(("/", "%2f"))
    return Place("" if here else name, int(port or _USUAL_PORT), database)
