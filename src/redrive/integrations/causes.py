"""Looking through the wrapping of a driver's error."""

from __future__ import annotations

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps, each once: SQLAlchemy keeps the driver's in ``orig``, Django chains it. A chain may
    be a circle, by ``raise a from b`` where ``b`` came from ``a``."""
    found: BaseException | None = error
    seen = set[int]()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        inner = getattr(found, "orig", None)
        found = inner if isinstance(inner, BaseException) else found.__cause__
