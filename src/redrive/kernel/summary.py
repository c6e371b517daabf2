"""Summaries: what of a failure may be shown to everybody, by construction: words of code, never words of data.

A summary is made once, where the outcome is made and the payload is at hand, and stored. Nothing in it is found by
looking for secrets: what is not known to be harmless is left out.
"""

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
MAX_PAYLOAD = 64_000
MAX_ASKED = 200
LEFT_OUT = "…"

_PIECE = re.compile(r"<\*>|[^\W\d_]+(?:['’-][^\W\d_]+)*|\S")
_WORD = re.compile(r"[^\W\d_]+")


class Payload:
    """Tells of a word whether the task's payload holds it.

    ``declared``: the names of the handler's parameters. Other keys are data like any value. Of what is larger than
    ``MAX_PAYLOAD`` nothing is known: it may hold every word.
    """

    def __init__(self, *texts: str | None, declared: Collection[str] = ()) -> None:
        given = [text for text in texts if text]
        self._text: str | None = None
        if sum(map(len, given)) <= MAX_PAYLOAD:
            self._text = "\n".join(_values(given, declared)).lower()
        self._words: frozenset[str] | None = None
        self._asked: dict[str, bool] = {}

    def holds(self, word: str) -> bool:
        """True if it holds this word, also as a part of another one unless it is very short."""
        if not self._text:
            return self._text is None
        word = word.lower()
        found = self._asked.get(word)
        if found is None:
            # Each look goes through all of it: a message may not ask for as many as it likes.
            found = len(self._asked) >= MAX_ASKED or self._look(word, self._text)
            self._asked[word] = found
        return found

    def _look(self, word: str, text: str) -> bool:
        if len(word) > 3:
            return word in text
        if self._words is None:
            self._words = frozenset(_WORD.findall(text))
        return word in self._words


def _values(texts: Iterable[str], declared: Collection[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        try:
            waiting: list[Any] = [json.loads(text)]
        except (ValueError, RecursionError):
            found.append(text)
            continue
        if isinstance(waiting[0], Mapping):
            found.extend(key for key in waiting[0] if key not in declared)
            waiting = list(waiting[0].values())
        while waiting:
            one = waiting.pop()
            if isinstance(one, Mapping):
                found.extend(one)
                waiting.extend(one.values())
            elif isinstance(one, list):
                waiting.extend(one)
            else:
                found.append(str(one))
    return found


NO_PAYLOAD = Payload()


def safe_message(text: str, written: Collection[str] = (), payload: Payload = NO_PAYLOAD) -> str:
    """Returns the words of a message that are known not to be data; everything else is left out."""
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


def type_and_words(summary: Mapping[str, Any] | None) -> tuple[str, str]:
    """Returns the type of the exception that a summary is of, and the words it said; some failures have the type among
    their words, and then it is said once."""
    told = summary or {}
    kind, words = str(told.get("exception") or ""), str(told.get("message") or "")
    for name in (kind, kind.rpartition(".")[2]):
        if name and (words == name or words.startswith(f"{name}:")):
            return kind, words[len(name) + 1 :].strip()
    return kind, words


def _harmless(piece: str, written: Collection[str], payload: Payload) -> bool:
    for word in _WORD.findall(piece.lower()) or [""]:
        if (word not in ERROR_WORDS and word not in written) or payload.holds(word):
            return False
    return True


def summary_of(
    message: str,
    *,
    exception: str | None = None,
    chain: Iterable[str] = (),
    frames: Iterable[str] = (),
    marks: Mapping[str, str | int] | None = None,
) -> dict[str, Any]:
    """Returns a summary as it is stored. ``message`` is a safe one, and so are the ``marks``: see kernel/marks.py."""
    found: dict[str, Any] = {"message": message}
    if exception:
        found["exception"] = exception[:200]
        found["chain"] = [name[:200] for name in chain][:10]
    if frames:
        found["frames"] = [name[:200] for name in frames][-10:]
    found |= marks or {}
    while len(json.dumps(found)) > MAX_SUMMARY and found.get("frames"):
        found["frames"] = found["frames"][1:]
    return found
