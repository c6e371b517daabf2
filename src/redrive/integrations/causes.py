"""Looking through the wrapping of a driver's error."""

from __future__ import annotations

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps: SQLAlchemy keeps the driver's in ``orig``, Django chains it."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = getattr(found, "orig", None) or found.__cause__
