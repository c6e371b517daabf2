"""What full text on SQLite and on PostgreSQL have in common: how texts are cut into words, and how documents are read.

Chinese, Japanese and Korean, which put no spaces between words, are cut into overlapping pairs of characters.

失败管理 is indexed as 失败 败管 管理 理: each character begins one word, so that a single one is found by prefix and a
longer run as a phrase of its pairs. All other scripts are left to the tokenizer of the index. What that makes of
capital letters and signs beyond ASCII depends on a database's locale, so letters are made small and signs spaces here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.outbox.sink import Stored

PAGE = 1000

# Kana, Bopomofo, Hangul and Han with their extensions; 々 〆 〇 are letters in a word, 、 。 ・ are not.
_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_CJK}]+")
_WIDTHS = re.compile("[\uff01-\uffef]+")  # full-width Latin letters and half-width kana are forms of the usual ones
_SIGN = re.compile(r"[^\w\x00-\x7f]")
_WORD = re.compile(r"[\w\x80-\U0010ffff]+")  # with marks that belong to letters; of a normal text, which has no signs


@dataclass(slots=True, frozen=True)
class Query:
    """A text that somebody looks for: what is written with spaces, and ``runs`` of what is written without."""

    text: str
    runs: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return _WORD.findall(self.text)


def query_of(text: str) -> Query:
    """Returns a text that is searched for in its two parts."""
    normal = _normal(text)
    return Query(_RUN.sub(" ", normal), tuple(_RUN.findall(normal)))


def pairs_of(run: str) -> list[str]:
    """Returns the overlapping pairs of a run; a single character by itself."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def indexed_text(text: str) -> str:
    """Returns a text as it is indexed: runs as pairs, each with its last character, the rest as it is."""
    return text if text.isascii() else _RUN.sub(_cut, _normal(text))


def indexed_document(value: Any) -> Any:
    """Returns a document with all of its texts as they are indexed."""
    if isinstance(value, str):
        return indexed_text(value)
    if isinstance(value, dict):
        return {name: indexed_document(one) for name, one in value.items()}
    return [indexed_document(one) for one in value] if isinstance(value, list) else value


def _normal(text: str) -> str:
    """Returns a text in composed form (ü is one character, as is a Korean syllable), in the usual widths, in small
    letters, and without signs beyond ASCII."""
    narrow = _WIDTHS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    return _SIGN.sub(_sign, unicodedata.normalize("NFC", narrow).lower())


def _sign(found: re.Match[str]) -> str:
    return " " if unicodedata.category(found[0])[0] in "PSZ" else found[0]  # what marks a letter belongs to it


def _cut(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join([*pairs_of(run), run[-1]])} " if len(run) > 1 else f" {run} "


class FullText:
    """A sink of SQL, whose rows are documents with their versions; deleted ones stay as theirs, so the newest wins,
    whatever comes when. What is read by statements of the same names on both is here."""

    remembers_deletes = True
    compares_versions = True

    async def _rows(self, statement: str, index: str | None, *arguments: Any) -> Sequence[Any]:
        """Returns the rows of a statement about an index; None: the live one."""
        raise NotImplementedError

    def _keys(self, keys: Sequence[str]) -> Any:
        """Returns keys as its statements take them."""
        return list(keys)

    async def refresh(self, index: str | None = None) -> None:
        """Nothing to do: what is committed is visible."""

    async def scan(self, index: str | None = None, after: str = "") -> AsyncIterator[Stored]:
        while rows := await self._rows("scan", index, after, PAGE):
            for row in rows:
                yield Stored(*row)
            after = rows[-1][0]

    async def find(self, keys: Sequence[str], index: str | None = None) -> Sequence[Stored]:
        return [Stored(*row) for row in await self._rows("find", index, self._keys(keys))]

    async def deleted(self, after: str, limit: int) -> Sequence[Stored]:
        return [Stored(*row) for row in await self._rows("deleted", None, after, limit)]

    async def deletions(self, keys: Sequence[str]) -> Sequence[Stored]:
        return [Stored(*row) for row in await self._rows("deletions", None, self._keys(keys))]

    async def get(self, key: str, index: str | None = None) -> Any:
        """Returns the document of a key; None where there is none, or it was deleted."""
        found = await self._rows("get", index, key)
        return json.loads(found[0][0]) if found else None
