"""Finds the words of a message that are the same each time, by what was written where it was raised.

What stands in the statement that raised is constant, whatever it looks like; what was put in there is not, even if it
is a plain word. Values leave no mark, so that a list of none, of one and of many gives the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from redrive.kernel.error_words import ERROR_WORDS
from redrive.kernel.message_template import HOLE, MAX_LOOKED_AT, WORD, folded, fragments, spans, template
from redrive.kernel.statements import NOTHING, Source, Written

# Words that names and titles have as well.
_LINKS = frozenset(["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"])
_ENDS = " \t\n:;,.-([{|"
_PROPER = re.compile(r"(?<![\w.])[A-Z]\w{1,60}(?: [A-Z]\w{1,60}){1,10}")


def constant(text: str, written: Written = NOTHING) -> str:
    """Returns the constant words: by the statements, else by their functions, else by what the words look like."""
    text = text[:MAX_LOOKED_AT]
    found = _first(text, written.statements)
    if found is None and written.statements and written.statements[0].raises:
        found = _without_words(text, written.statements[0])
    if found is None:
        found = _first(text, written.around)
    return _words(template(text)) if found is None else found


def statement_of(text: str, written: Written) -> str | None:
    """Returns the words that are written in the statements that a message came through, and none of anybody else's;
    None if none of them fits."""
    return _first(text[:MAX_LOOKED_AT], written.statements, prose=False)


def _first(text: str, sources: Iterable[Source], *, prose: bool = True) -> str | None:
    """Returns the words by the first source that fits."""
    for source in sources:
        for texts, least in source.readings():
            found = spans(text, fragments(text, texts))
            if sum(len(WORD.findall(text[begin:end])) for begin, end in found) >= least:
                return _words(_Reading(text, source, prose).kept(found))
    return None


def _without_words(text: str, raised: Source) -> str | None:
    """Returns what callers wrote of a message, if the statement that raised has no word of its own, else what it passed
    on."""
    return _words(_Reading(text, raised).of_callers(text)) or _passed_on(text, raised) or None


def _passed_on(text: str, source: Source) -> str:
    """Returns the usual words of what a statement passed on without a word of its own: ``f"{path}: {error}"``."""
    if not any(one.strip() in (":", "-") for one in source.texts):
        return ""
    return " ".join(word for piece in re.split("[:,] ", template(text)) for word in _prose(piece))


@dataclass(slots=True)
class _Reading:
    """A message, and the texts it was made of."""

    text: str
    source: Source
    prose: bool = True
    given: list[str] | None = None

    def kept(self, found: list[tuple[int, int]]) -> str:
        parts: list[str] = []
        at = 0
        for begin, end in [*found, (len(self.text), len(self.text))]:
            parts += [self._put_in(at, begin), self.text[begin:end]]
            at = end
        return HOLE.join(parts)

    def _put_in(self, begin: int, end: int) -> str:
        """Returns what to keep of a text that was put in: what a caller wrote, a phrase of a function that was called
        for it, of prose its usual words, of anything else nothing. Prose stands at the end, after a colon or alone;
        whatever else is put into a sentence is a value."""
        value = self.text[begin:end]
        if not WORD.search(value):
            return ""
        if found := self.of_callers(value) or _phrases(value, self.source.called):
            return found
        before = self.text[:begin].rstrip()
        if not self.prose or self.text[end:].strip() or (before and before[-1] not in ":-(>"):
            return ""
        if fragments(value, self.source.passing):
            return ""
        return " ".join(word for piece in template(value).split(",") for word in _prose(piece))

    def of_callers(self, value: str) -> str:
        """Returns what callers wrote of a value, be it one word: ``not_found("customer", number)``."""
        if self.given is None:
            self.given = fragments(self.text, self.source.given, names=True)
        return HOLE.join(value[begin:end] for begin, end in spans(value, self.given))


def _phrases(value: str, literals: Iterable[str]) -> str:
    parts = (value[begin:end] for begin, end in spans(value, fragments(value, literals)))
    return HOLE.join(part for part in parts if len(WORD.findall(part)) > 1)


def _prose(text: str) -> list[str]:
    """Returns the usual words of a piece of prose, each once; nothing for what does not read like prose."""
    text = _PROPER.sub(_named, text)
    words = [word for word in dict.fromkeys(map(str.lower, WORD.findall(text))) if word not in _LINKS]
    known = [word for word in words if word in ERROR_WORDS]
    return known if len(known) >= 2 and len(known) * 3 >= len(words) else []


def _named(found: re.Match[str]) -> str:
    """Replaces a name of several words (``Bad Homburg``), each of which may be a usual one."""
    return found[0] if all(word.lower() in ERROR_WORDS for word in WORD.findall(found[0])) else HOLE


def _words(text: str) -> str:
    return folded(" ".join(piece.strip(_ENDS) for piece in text.split(HOLE)))
