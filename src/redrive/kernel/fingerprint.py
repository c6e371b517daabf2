"""Fingerprints: which failures have one cause. A pure function of one failure.

The exceptions' types and the application's own frames (module and function) say what happened where; status, errno,
SQLSTATE and a provider's code always count. The message counts, without its variable parts, where it was written for
this: in a verdict, in a bare exception that the application raised itself, and where there is no frame; of any other
exception that the application raised, the words that are written in its ``raise`` statement. When a connection or a
time-out fails, the cause is who did not answer, whoever called: one dead database is one cause in thirty kinds. Who did
not answer is a name; of bare addresses, of which there may be hundreds, the port and the frame that called them count.
An application may decide it all itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from redrive.kernel.evidence import Marks
from redrive.kernel.peer import service_of

# The first digit of a fingerprint is the version of the algorithm that made it.
VERSION = 3
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
    message: str | None = None  # without its variable parts; None where it does not count
    message_before: str | None = None  # as the first algorithm has it
    peer: str | None = None
    peer_before: str | None = None  # as the algorithms before the third one have it
    cause: str | None = None  # the application's own word
    place: str = ""  # of what is no exception: a kind, a handler


def fingerprint(facts: Facts) -> str:
    """Returns the name of the cause that a failure has."""
    return ALGORITHMS[-1](facts)


def former(facts: Facts) -> tuple[str, ...]:
    """Returns the names by earlier versions of the algorithm, the latest first: a known cause of that name is used
    further."""
    names = dict.fromkeys(algorithm(facts) for algorithm in reversed(ALGORITHMS))
    return tuple(names)[1:]


def _first(facts: Facts) -> str:
    return _digest(1, _parts(replace(facts, message=facts.message_before, peer=facts.peer_before)))


def _second(facts: Facts) -> str:
    """Version 2: as version 1, with a better notion of what is constant in a message."""
    return _digest(2, _parts(replace(facts, peer=facts.peer_before)))


def _third(facts: Facts) -> str:
    """Version 3: bare addresses are no peers. What is asked for by its name is told by that; of addresses alone, what
    they offer and who calls them. All others have the names that they had."""
    service = None if facts.peer is None else service_of(facts.peer)
    if facts.cause is not None or not _peer_decides(facts):
        return _second(facts)
    if service is None:
        return _second(facts) if facts.peer == facts.peer_before else _digest(3, _parts(facts))
    outer, marks = facts.exceptions[0], _marks(facts)
    if outer.partition(".")[0] in _SERVERS:
        return _digest(3, ["server", outer, service, *marks])
    return _digest(3, ["addresses", outer, service, *facts.frames[-1:], *marks])


def _peer_decides(facts: Facts) -> bool:
    return bool(facts.exceptions) and facts.reason in _PEERS_ONLY and "status" not in facts.marks


def _marks(facts: Facts) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(facts.marks.items())]


def _parts(facts: Facts) -> Sequence[str]:
    if facts.cause is not None:
        return ["cause", facts.cause]
    marks = _marks(facts)
    outer, *inner = facts.exceptions or ("",)
    if _peer_decides(facts):
        # Inner exceptions differ by the way a client works (threads or a loop, one address or several).
        if facts.peer is not None:
            return ["peer", outer, facts.peer, *marks]
        if facts.reason == "connect" and outer.partition(".")[0] in _SERVERS:
            return ["server", outer, *marks]
    types = [outer, *sorted(set(inner) - {outer})]
    message = [] if facts.message is None else ["message", facts.message]
    reason = [] if outer else ["reason", facts.reason, facts.place]
    return [facts.code, *reason, "types", *types, "frames", *facts.frames, "marks", *marks, *message]


def _digest(version: int, parts: Sequence[str]) -> str:
    text = "\x1f".join(parts).encode("utf-8", "replace")
    return f"{version:x}" + hashlib.blake2b(text, digest_size=8).hexdigest()[1:]


# Oldest first. A new version is added at the end; the old ones stay, and find the causes they named.
ALGORITHMS: tuple[Callable[[Facts], str], ...] = (_first, _second, _third)
