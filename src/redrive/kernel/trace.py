"""The trace that a task belongs to: its id, and the caller's whole context where a W3C traceparent was given.

A producer may give a ``traceparent`` (and its ``tracestate`` behind a space) where a trace id is asked for. A store
keeps the trace's id, which tasks are found by, and the whole text beside it, for the span of each attempt.
"""

from __future__ import annotations

import re

# Version 00; what later ones add comes behind a dash. There is no version ff, and ids of nothing but zeros are none.
TRACEPARENT = re.compile(
    r"(?:00|((?!00|ff)[0-9a-f]{2}))-(?!0{32})(?P<id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?(1)(?:-[^ ]*)?)(?: .*)?"
)


def split_trace(given: str | None) -> tuple[str | None, str | None]:
    """Returns the id of a trace, and the caller's context if that is what was given."""
    if given is None:
        return None, None
    found = TRACEPARENT.fullmatch(given)
    return (given, None) if found is None else (found["id"], given)


def trace_id_of(given: str | None) -> str | None:
    """Returns the id of a trace, by which its tasks are found."""
    return split_trace(given)[0]
