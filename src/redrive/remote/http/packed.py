"""Unpacks answers that a provider sent packed although that was not asked for: once, and never into more than a bound.
A few kilobytes that are packed twice can be gigabytes."""

from __future__ import annotations

import zlib

_PLAIN = ("", "identity")
_GZIP = ("gzip", "x-gzip")
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS


class PackedAnswer(ValueError):
    """What came cannot be unpacked, or not within the bound."""


def unpacked(content: bytes, encoding: str, most: int) -> bytes:
    """Returns the content of an answer whose Content-Encoding is ``encoding``; raises PackedAnswer."""
    named = encoding.strip().lower()
    if named in _PLAIN or not content:
        return content
    if named not in _GZIP:
        raise PackedAnswer(f"answered packed as {encoding[:60]!r}, which was not asked for")
    unpacking = zlib.decompressobj(_WITH_GZIP_HEADER)
    try:
        found = unpacking.decompress(content, most + 1)
    except zlib.error as error:
        raise PackedAnswer(f"answered what is called gzip and is none: {error}") from None
    if len(found) > most:
        raise PackedAnswer(f"answered with more than {most:,} bytes, packed into {len(content):,}")
    if not unpacking.eof:
        raise PackedAnswer("answered with gzip that is cut short")
    return found
