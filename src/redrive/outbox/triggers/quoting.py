"""Quotes names and texts for scripts that people run: whatever a table is called, it stays a name."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from redrive.errors import InvalidInput

MOST_BYTES = 63  # PostgreSQL cuts longer names


def name(text: str) -> str:
    """Returns a name in quotes, as both databases read it."""
    if "\0" in text:
        raise InvalidInput("a name cannot have a NUL character")
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    """Returns a text in quotes, as both databases read it."""
    if "\0" in value:
        raise InvalidInput("a text cannot have a NUL character")
    return "'" + value.replace("'", "''") + "'"


def own_name(*parts: str) -> str:
    """Returns the name of something of ours that belongs to these, shortened where it is too long."""
    whole = "_".join(parts)
    if len(whole.encode()) <= MOST_BYTES:
        return whole
    tail = "_" + hashlib.sha256(whole.encode()).hexdigest()[:10] + "_" + parts[-1][:12]
    kept = whole.encode()[: MOST_BYTES - len(tail.encode())].decode("utf-8", "ignore")
    return kept + tail


def remark(value: str) -> str:
    """Returns a text for a comment of one line: nothing in it can end the comment."""
    return "".join(one if one.isprintable() else "?" for one in value)


def mark(facts: dict[str, Any]) -> str:
    """Returns JSON that can stand in a comment: no ``*/``, and only ASCII."""
    return json.dumps(facts).replace("/", "\\/")


def dollar(body: str) -> str:
    """Returns a tag for dollar quotes that the body does not have."""
    tag, n = "$redrive$", 0
    while tag in body:
        n += 1
        tag = f"$redrive{n}$"
    return tag
