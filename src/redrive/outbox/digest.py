"""Digests of ranges of documents: source and sink compare these before they compare documents.

The digest of a range is the sum, modulo 2**64, of a number for each document: the first eight bytes of the MD5 of its
key, a line feed and its version. It does not depend on the order, so every database can compute it: MD5 is for speed
here, and proves nothing to anybody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from redrive.outbox.sink import Digest

MODULUS = 2**64


def number_of(key: str, version: int) -> int:
    """Returns the number of one document."""
    text = f"{key}\n{version}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "big")


def digest_of(documents: Iterable[tuple[str, int]]) -> Digest:
    """Returns the digest of documents, of which each is a key and a version."""
    count = total = 0
    for key, version in documents:
        count, total = count + 1, (total + number_of(key, version)) % MODULUS
    return as_digest(count, total)


def as_digest(count: int, total: int) -> Digest:
    """Returns a digest of a count and a sum, as a database computes them."""
    return Digest(count, f"{total % MODULUS:016x}")
