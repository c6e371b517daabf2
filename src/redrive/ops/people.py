"""Compares names of people as people read them."""

from __future__ import annotations

import unicodedata

# Drawn as nothing, or as a blank, by whatever shows them, though Unicode does not call them format characters: the
# grapheme joiner, fillers, variation selectors, the empty braille pattern.
_BLANK = frozenset(
    [
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x180B,
        0x180C,
        0x180D,
        0x180F,
        0x2800,
        0x3164,
        0xFFA0,
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
    ]
)


def person(name: str) -> str:
    """Returns a name as people read it: "Ann" is "ann", and so is one with a zero-width space in it. Empty when nothing
    of it can be seen."""
    seen = "".join(c for c in name if unicodedata.category(c) != "Cf" and ord(c) not in _BLANK)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.split())
