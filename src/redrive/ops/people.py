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


# Small letters of other scripts that are drawn like Latin ones, as they are or as capitals. One too many takes two
# names for one, which refuses something; one too few takes one person for two.
_DRAWN_ALIKE = str.maketrans(
    "авеёкмнорстухіїјѕһԁԛԝӏьαβεηικμνορτυχγω",
    "abeekmhopctyxiijshdqwlbabehikmvoptuxyw",
)
_EAST_ASIAN = frozenset(["CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"])


def person(name: str) -> str:
    """Returns a name as people read it: "Ann" is "ann", and so is one with a zero-width space in it, or with a letter
    of another script that is drawn like ours. Empty when nothing of it can be seen."""
    seen = "".join(c for c in name if unicodedata.category(c) != "Cf" and ord(c) not in _BLANK)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.translate(_DRAWN_ALIKE).split())


def mixed_scripts(name: str) -> list[str]:
    """Returns the scripts of a name that is written in several of which one may stand for another; empty for any other
    name. East Asian ones look like no other, and are written together."""
    letters = [c for c in unicodedata.normalize("NFKC", name) if c.isalpha() and unicodedata.category(c) != "Lm"]
    found = {unicodedata.name(c, "UNKNOWN").split()[0] for c in letters} - _EAST_ASIAN
    return sorted(found) if len(found) > 1 else []
