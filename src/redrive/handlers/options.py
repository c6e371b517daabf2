"""Lists what can be said about a task when it is enqueued, besides its kind and payload."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from redrive.errors import InvalidInput


class EnqueueOptions(TypedDict, total=False):
    """The options of ``App.enqueue``."""

    connection: Any
    queue: str | None
    priority: int | None
    delay: float | None
    run_at: datetime | None
    max_attempts: int | None
    timeout: float | None
    group: str | None
    scope: str | None
    trace_id: str | None
    idempotency_key: str | None
    join: UUID | None


def check_options(options: EnqueueOptions) -> EnqueueOptions:
    """Returns the options, or refuses names that are none."""
    known = EnqueueOptions.__annotations__
    unknown = [name for name in options if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, 1)
        raise InvalidInput(
            f"there is no enqueue option {unknown[0]!r}",
            hint=f"did you mean {close[0]}?" if close else f"options are: {', '.join(known)}",
        )
    return options
