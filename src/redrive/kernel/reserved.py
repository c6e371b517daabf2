"""Kinds that belong to a feature, and are not for producers.

Whoever could enqueue one could have money settled, or a text signed in a customer's name. They are refused here, and by
``redrive.enqueue`` of PostgreSQL; a feature's own tasks say that they are (``NewTask.own``). So do the idempotency keys
that begin with ``redrive:``: whoever took one would keep a feature's task from being made.
"""

from __future__ import annotations

from collections.abc import Iterable

from redrive.errors import InvalidInput


class KindReserved(InvalidInput):
    """A kind belongs to a feature, and producers do not enqueue it."""

    code = "TASK_KIND_RESERVED"


class ReservedKinds:
    """What the kinds begin with that the features of an application have to themselves."""

    __slots__ = ("_begins", "_whose")

    def __init__(self) -> None:
        self._begins: tuple[str, ...] = ()
        self._whose: dict[str, str] = {}

    def add(self, feature: str, begins: Iterable[str]) -> None:
        """Keeps kinds for a feature."""
        self._whose |= dict.fromkeys(begins, feature)
        self._begins = tuple(self._whose)

    def refuse(self, kind: str) -> None:
        """Refuses a kind that a producer may not enqueue."""
        if kind.startswith(self._begins):
            whose = next(feature for begins, feature in self._whose.items() if kind.startswith(begins))
            raise KindReserved(
                f"the kind {kind[:80]} is kept for the feature {whose}, which enqueues it itself",
                hint="call what the feature offers, or give your kind another name",
            )
