"""Makes text fit for every store."""

from __future__ import annotations

MAX_MESSAGE = 4_000  # characters of a message that are kept


def clean(text: str) -> str:
    """Returns text that every store can hold: no NUL, no lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
