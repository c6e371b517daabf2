"""Checks ``history=`` of a kind: how long its completed tasks are kept."""

from __future__ import annotations

from redrive.errors import InvalidInput
from redrive.kernel.wording import seconds_of

DEFAULT_HISTORY = "default"
LONGEST_HISTORY_S = 36_500 * 86_400.0


def check_history(kind: str, given: object) -> float | None:
    """Returns seconds; None: as long as those of all kinds, 0: not at all."""
    if given == DEFAULT_HISTORY:
        return None
    if given is None:
        return 0.0
    if isinstance(given, str) and (found := seconds_of(given)) is not None:
        given = found
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= LONGEST_HISTORY_S:
        raise InvalidInput(
            f"history of {kind} must be a time such as '15m', '1h' or '2d', seconds, or None, not {given!r}",
            hint="None or 0 keeps nothing of completed tasks; left out, REDRIVE_HISTORY_DAYS holds",
        )
    return float(given)
