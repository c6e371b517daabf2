"""What of a failure may be shown to everybody, by construction: words of code, never words of data.

It is made once, where the outcome is made and the payload is at hand, and stored. Nothing in it is found by looking for
secrets: what is not known to be harmless is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from redrive.kernel.error_words import ERROR_WORDS
from redrive.kernel.message_template import HOLE, template

MAX_SUMMARY = 4_000
MAX_WORDS = 80
MAX_MESSAGE = 1_000
MAX_PAYLOAD_PARSED = 64_000
LEFT_OUT = "…"

_PIECE = re.compile(r"<\*>|[^\W\d_]+(?:['’-][^\W\d_]+)*|\S")
_WORD = re.compile(r"[^\W\d_]+")
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
_SHORT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,60}")


class Payload:
    """What the task was given, asked word by word whether it holds that word."""

    def __init__(self, *texts: str | None) -> None:
        given = [text for text in texts if text]
        self._parsed = sum(map(len, given)) <= MAX_PAYLOAD_PARSED
        # A large payload is not taken apart: its keys count as values too, and what JSON may write as an escape does.
        self._text = "\n".join(_values(given) if self._parsed else given).lower()
        self._words: frozenset[str] | None = None

    def holds(self, word: str) -> bool:
        """Whether a value holds this word, as a part of another one too unless it is very short."""
        if not self._text:
            return False
        word = word.lower()
        if not self._parsed and not word.isascii():
            return True
        if len(word) > 3:
            return word in self._text
        if self._words is None:
            self._words = frozenset(_WORD.findall(self._text[: 2 * MAX_PAYLOAD_PARSED]))
        return word in self._words


def _values(texts: Iterable[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        try:
            waiting: list[Any] = [json.loads(text)]
        except (ValueError, RecursionError):
            found.append(text)
            continue
        while waiting:
            one = waiting.pop()
            if isinstance(one, Mapping):
                waiting.extend(one.values())
            elif isinstance(one, list):
                waiting.extend(one)
            else:
                found.append(str(one))
    return found


NO_PAYLOAD = Payload()


def words_of(literals: Iterable[str]) -> set[str]:
    """The words of texts that a programmer wrote: phrases and parts of formats. A single name may be anything."""
    found: set[str] = set()
    for text in literals:
        if not text.isidentifier():
            found.update(word.lower() for word in _WORD.findall(text))
    return found


def safe_message(text: str, written: Collection[str] = (), payload: Payload = NO_PAYLOAD) -> str:
    """The words of a message that are known not to be data; everything else is left out."""
    said: list[str] = []
    words = 0
    for piece in _PIECE.findall(template(text)):
        if len(piece) == 1 and not piece.isalnum():
            if said and said[-1] != LEFT_OUT and piece in ".,:;":
                said[-1] += piece
            continue
        if piece != HOLE and words < MAX_WORDS and _harmless(piece, written, payload):
            said.append(piece)
            words += 1
        elif not said or said[-1] != LEFT_OUT:
            said.append(LEFT_OUT)
    return " ".join(said)[:MAX_MESSAGE]


def _harmless(piece: str, written: Collection[str], payload: Payload) -> bool:
    for word in _WORD.findall(piece.lower()) or [""]:
        if (word not in ERROR_WORDS and word not in written) or payload.holds(word):
            return False
    return True


def summary_of(
    message: str, *, exception: str | None = None, chain: Iterable[str] = (), frames: Iterable[str] = (),
    marks: Mapping[str, str | int] | None = None, payload: Payload = NO_PAYLOAD,
) -> dict[str, Any]:  # fmt: skip
    """A summary as it is stored. ``message`` is a safe one; ``marks`` are status, errno, SQLSTATE and the like."""
    found: dict[str, Any] = {"message": message}
    if exception:
        found["exception"] = exception[:200]
        found["chain"] = [name[:200] for name in chain][:10]
    if frames:
        found["frames"] = [name[:200] for name in frames][-10:]
    found |= {name: value for name, value in (marks or {}).items() if _harmless_mark(name, value, payload)}
    while len(json.dumps(found)) > MAX_SUMMARY and found.get("frames"):
        found["frames"] = found["frames"][1:]
    return found


def _harmless_mark(name: str, value: str | int, payload: Payload) -> bool:
    """A number, or a short name that the task was not given: a provider may send anything as its code."""
    if isinstance(value, int):
        return abs(value) < 100_000
    if payload.holds(value):
        return False
    if name == "sqlstate":
        return _SQLSTATE.fullmatch(value) is not None
    return _SHORT_NAME.fullmatch(value) is not None and HOLE not in template(value)
