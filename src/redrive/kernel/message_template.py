"""Finds the constant part of a message: what differs between failures of one cause becomes ``<*>``."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LOOKED_AT = 4_000
MAX_FRAGMENTS = 400
MAX_FOLDED = 8
HOLE = "<*>"

# One mark for every kind of value: the same slot holds a number today and a quoted name tomorrow. No pattern has a
# repetition within a repetition over the same characters, and each is anchored by a character or has a bound: the time
# is linear in the text, whatever it is.
_PATTERNS = [
    re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s'\"<>`\])}]+"),  # any URL or URI
    re.compile(r"\b(?:arn|urn|data):[^\s'\"<>`\])},;]+"),
    re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,128}"),  # mail addresses
    re.compile(r"(?<!\w)[rbfu]{0,2}'[^'\n]{0,1000}'(?!\w)|(?<!\w)[rbfu]{0,2}\"[^\"\n]{0,1000}\"(?!\w)"),
    re.compile(  # without the opening one inside: a text of nothing else is gone through once
        r"`[^`\n]{0,1000}`|“[^“”\n]{0,1000}”|‘[^‘’\n]{0,1000}’|«[^«»\n]{0,1000}»|「[^「」\n]{0,1000}」"
    ),
    re.compile(  # the words in dates, next to their numbers
        r"\b(?:mon|tue|wed|thu|fri|sat|sun)(?:[a-z]{3,6})?,?[ ]+(?=\d)|"
        r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:[a-z]{3,6})?[ .,-]{1,2}(?=\d)|"
        r"(?<=\d)[ -]?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?:[a-z]{3,6})?\b|"
        r"(?<=\d)[ ]?(?:am|pm|utc|gmt)\b|"
        r"\b(?:mon|tue|wed|thu|fri|sat|sun) (?=(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) )",
        re.I,
    ),
    re.compile(r"(?<![\w./\\~-])(?:~|\.{1,2}|[A-Za-z]:)?[\\/][^\s'\"`:;,()\[\]{}<>|]+"),  # absolute and ./ paths
    re.compile(r"(?<![\w.-])[\w.@-]{1,100}/[^\s'\"`:;,()\[\]{}<>|]*[./\d][^\s'\"`:;,()\[\]{}<>|]*"),  # relative ones
    re.compile(
        r"\b[\w-]{1,100}\.(?:csv|tsv|json|jsonl|xml|ya?ml|toml|ini|txt|log|pdf|png|jpe?g|gif|webp|mp[34]|mov|wav|zip|gz"
        r"|tar|tgz|bz2|xz|parquet|avro|orc|xlsx?|docx?|pptx?|html?|sql|db|sqlite3?|pkl|npy|bin|dat|tmp|bak|lock|sock|pem"
        r"|crt|key)\b",
        re.I,
    ),
    re.compile(r"(?<![\w:])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?:%\w{1,20})?(?![\w:])", re.I),  # IPv6, MAC, times
    re.compile(r"(?<![\w.-])[a-z0-9]{1,63}[.-][a-z0-9.-]{0,251}:\d{1,5}\b", re.I),  # host and port
    re.compile(
        r"(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}(?:com|net|org|io|dev|app|internal|local|example|test|cloud)\b", re.I
    ),
    # Anything with a digit in it: numbers, sizes, versions, ids of every make.
    re.compile(r"(?<![\w-])(?:[^\W\d]\w*-){0,6}[-+#$€]?\w*\d\w*(?:[.,:%/+=-]\w*\d\w*)*(?:-\w+)*%?"),
    re.compile(r"\b(?:None|null|nil|nan|inf|true|false|undefined)\b", re.I),
]
_HEX_WORD = re.compile(r"\b[a-f]{4,}\b")
_ENGLISH_HEX = frozenset(
    ["dead", "beef", "face", "faced", "fade", "faded", "cafe", "deaf", "added", "decade", "facade"]
)
# Letters only, but not a word: the case goes up and down, as in generated keys.
_JUMBLED = re.compile(r"\b(?=\w*[a-z]{1,3}[A-Z]{1,3}[a-z]{1,3}[A-Z]{1,3}[a-z]|\w*[a-z][A-Z][a-z][A-Z])\w{8,}\b")
_KEYED = re.compile(
    r"\b(?:cus|sub|inv|pi|ch|tok|card|acct|req|usr|user|org|key|sk|pk|evt|ses|msg|run|thread|file)_[A-Za-z]{8,}\b"
)
_HOLES = re.compile(r"<\*>(?:[\s,;:/|&=+.#-]{0,3}<\*>)+")
_LISTED = re.compile(r"[\[{(](?:[\s,;:/|=]|<\*>|\w{1,40}[:=]\s?(?=<\*>)){0,400}[\]})]")


def template(text: str, limit: int = MAX_LOOKED_AT) -> str:
    """Returns the message with its variable parts replaced."""
    text = text[:limit]
    for pattern in _PATTERNS:
        text = pattern.sub(HOLE, text)
    text = _KEYED.sub(HOLE, text)
    text = _HEX_WORD.sub(lambda found: found[0] if found[0] in _ENGLISH_HEX else HOLE, text)
    text = _JUMBLED.sub(_jumbled, text)
    for _ in range(3):  # lists in lists
        text = _HOLES.sub(HOLE, text)
        text = _LISTED.sub(HOLE, text)
    return folded(_HOLES.sub(HOLE, text))


def folded(text: str) -> str:
    """Returns the words with immediate repetitions left out: a message may have one line for each row of a list."""
    words = text.split()
    for size in range(1, MAX_FOLDED + 1):
        kept: list[str] = []
        at = 0
        while at < len(words):
            piece = words[at : at + size]
            if len(piece) == size and kept[-size:] == piece:
                at += size
            else:
                kept.append(words[at])
                at += 1
        words = kept
    return " ".join(words)


def _jumbled(found: re.Match[str]) -> str:
    """Replaces jumbled capitals. CamelCase made of words stays: all but one of its parts have at least three
    letters."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", found[0])
    short = sum(len(part) < 3 for part in parts)
    return HOLE if short > max(1, len(parts) // 3) else found[0]


FIELD = re.compile(
    r"%(?:\(\w{1,60}\))?[-#0 +]{0,4}\d{0,4}(?:\.\d{1,4})?[sdrfgxiueac%]|\{[^{}]{0,100}\}|\$\{?[A-Za-z_]\w{0,60}\}?"
)
WORD = re.compile(r"[^\W\d_]{2,}")
_PLURAL = re.compile(r"(?:e?s|e?n|ies)(?![^\W\d_])")


def fragments(text: str, literals: Iterable[str], *, names: bool = False) -> list[str]:
    """Returns the parts of the source's texts, between their fields, that stand in a message, longest first. A single
    name is left out, unless it is all there is, or ``names`` count."""
    found = {
        part
        for literal in dict.fromkeys(literals)
        if names or literal == text or not literal.isidentifier()
        for part in FIELD.split(literal[:MAX_LOOKED_AT])
        if part in text and WORD.search(part)
    }
    return sorted(found, key=lambda part: (-len(part), part))[:MAX_FRAGMENTS]


def spans(text: str, parts: Iterable[str]) -> list[tuple[int, int]]:
    """Returns where these parts stand in a text, none within a word; a plural may follow."""
    taken = bytearray(len(text))
    found: list[tuple[int, int]] = []
    for part in parts:
        begin = text.find(part)
        while begin >= 0:
            end = begin + len(part)
            if not any(taken[begin:end]) and _whole(text, begin, end):
                taken[begin:end] = b"\x01" * len(part)
                found.append((begin, end))
            begin = text.find(part, end)
    return sorted(found)


def _whole(text: str, begin: int, end: int) -> bool:
    before = begin > 0 and text[begin - 1].isalpha() and text[begin].isalpha()
    after = end < len(text) and text[end - 1].isalpha() and text[end].isalpha()
    return not before and not (after and not _PLURAL.match(text, end))
