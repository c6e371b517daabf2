"""Fingerprints: which failures have one cause. A pure function of one failure.

The exceptions' types and the application's own frames (module and function) say what happened where; status, errno,
SQLSTATE and a provider's code always count. Of what the application raised itself, what its authors wrote for it counts
too (``kernel/raise_site.py``); of anything else without a frame, the message without its variable parts. When a
connection or a time-out fails, the cause is who did not answer, whoever called: one dead database is one cause in
thirty kinds. Who did not answer is a name; of bare addresses, of which there may be hundreds, the port and the frame
that called them count. An application may decide it all itself.

The first digit of a name is the version of the rule that made it: a rule that changes gets a new one, and all other
causes keep their names. Stores go on with an older cause that shows the same summary.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from redrive.kernel.evidence import Marks
from redrive.kernel.peer import service_of

_PEERS_ONLY = frozenset({"connect", "timeout", "tls"})
# A driver that lost its server does not always say which; an application has one of each.
_SERVERS = frozenset(
    {
        "psycopg",
        "psycopg_pool",
        "psycopg2",
        "asyncpg",
        "sqlalchemy",
        "redis",
        "pymongo",
        "pymysql",
        "MySQLdb",
        "aiopg",
        "django",
    }
)


@dataclass(slots=True, frozen=True)
class Facts:
    """Everything that a fingerprint may depend on."""

    code: str
    reason: str = ""
    exceptions: tuple[str, ...] = ()  # type names, the outermost first
    frames: tuple[str, ...] = ()
    marks: Marks = field(default_factory=dict)
    written: str | None = None  # by the authors, for what the application raised
    message: str | None = None  # of what has no place: without its variable parts
    peer: str | None = None
    cause: str | None = None  # the application's own word
    place: str = ""  # of what is no exception: a kind, a handler


def fingerprint(facts: Facts) -> str:
    """Returns the name of the cause that a failure has."""
    if facts.cause is not None:
        return _name(2, "cause", facts.cause)
    marks = [f"{name}={value}" for name, value in sorted(facts.marks.items())]
    outer, *inner = facts.exceptions or ("",)
    if outer and facts.reason in _PEERS_ONLY and "status" not in facts.marks:
        # Inner exceptions differ by the way a client works (threads or a loop, one address or several).
        server = outer.partition(".")[0] in _SERVERS
        service = None if facts.peer is None else service_of(facts.peer)
        if service is not None and server:
            return _name(3, "server", outer, service, *marks)
        if service is not None:
            return _name(3, "addresses", outer, service, *facts.frames[-1:], *marks)
        if facts.peer is not None:
            return _name(2, "peer", outer, facts.peer, *marks)
        if server and facts.reason == "connect":
            return _name(2, "server", outer, *marks)
    types = [outer, *sorted(set(inner) - {outer})]
    place = [] if outer else ["reason", facts.reason, facts.place]
    parts = [facts.code, *place, "types", *types, "frames", *facts.frames, "marks", *marks]
    if facts.written is not None:
        return _name(4, *parts, "written", facts.written)
    return _name(2, *parts, *([] if facts.message is None else ["message", facts.message]))


def _name(version: int, *parts: str) -> str:
    text = "\x1f".join(parts).encode("utf-8", "replace")
    return f"{version:x}" + hashlib.blake2b(text, digest_size=8).hexdigest()[1:]
