"""Makes rows of a full-text file from events: the document, and the text that it is found by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from redrive.outbox.event import Event, Op
from redrive.outbox.sinks.text_words import indexed_text

_encode = json.JSONEncoder(ensure_ascii=False).encode  # one, not one for each document


def row_of(event: Event) -> tuple[str, int, int, str | None, str, str | None, int]:
    """Returns key, version, whether it is deleted, routing, text, document and base."""
    if event.op is Op.DELETE:
        return event.key, event.version, 1, event.routing, "", None, event.base
    document = _encode(event.payload)
    words = indexed_text("\n".join(_texts(event.payload)))
    return event.key, event.version, 0, event.routing, words, document, event.base


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts and numbers of a document: what it can be found by."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
