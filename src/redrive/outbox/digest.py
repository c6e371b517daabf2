"""Digests of ranges of documents: source and sink compare these before they compare documents.

The digest of a range is the sum, modulo 2**64, of a number for each document: the first eight bytes of the MD5 of its
key, a line feed and its version; of a document in a later life of its key (see ``Event``) another line feed and its
base follow. A source knows no bases: whoever compares reads the ranges that have such keys. The digest does not depend
on the order, so every database can compute it: MD5 is for speed here, and proves nothing to anybody.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from redrive.outbox.sink import Digest

MODULUS = 2**64


def number_of(key: str, version: int, base: int = 0) -> int:
    """Returns the number of one document."""
    text = f"{key}\n{version}\n{base}" if base else f"{key}\n{version}"
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


def digests_of(documents: Iterable[tuple[str, int] | tuple[str, int, int]], bounds: Sequence[str] = ()) -> list[Digest]:
    """Returns the digests of documents, of which each is a key, a version and perhaps a base, by the ranges that bounds
    make: up to the first, between two of them, behind the last."""
    ends = [bound.encode() for bound in bounds]
    found = [(0, 0)] * (len(ends) + 1)
    for key, *numbers in documents:
        at = bisect_left(ends, key.encode())
        count, total = found[at]
        found[at] = count + 1, (total + number_of(key, *numbers)) % MODULUS
    return [as_digest(*one) for one in found]


def as_digest(count: int, total: int) -> Digest:
    """Returns a digest of a count and a sum, as a database computes them."""
    return Digest(count, f"{total % MODULUS:016x}")


def sum_of(parts: Iterable[Digest]) -> Digest:
    """Returns the digest of documents whose parts these are the digests of."""
    known = list(parts)
    return as_digest(sum(one.count for one in known), sum(int(one.digest, 16) for one in known))


def thresholds(bounds: Iterable[str]) -> list[str]:
    """Returns keys for ``width_bucket`` of PostgreSQL, which counts a key that is equal to a bound to the range behind
    it, where a range of ours ends with its bound: nothing else lies between a text and the same with this character."""
    return [f"{bound}\x01" for bound in bounds]


def all_ranges(found: Iterable[tuple[int, int, int]], bounds: int) -> list[Digest]:
    """Returns the digest of each range of so many bounds, of rows (number of the range, count, sum): those without
    documents have none."""
    rows = {number: as_digest(count, total) for number, count, total in found}
    return [rows.get(number) or as_digest(0, 0) for number in range(bounds + 1)]
