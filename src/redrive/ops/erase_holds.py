"""Finds pauses that name whose data is erased."""

from __future__ import annotations

from redrive.kernel.commit import Target
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query
from redrive.kernel.task import LIVE
from redrive.ops.erase_subject import Subject


async def holds_of(store: Store, subject: Subject) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns paused groups that are named after it, and other pauses whose reason quotes it."""
    if subject.scope is None:
        return [], []
    found = (await store.overview()).holds
    named = [hold.name for hold in found if hold.target == Target.GROUP and subject.named_in(hold.name)]
    return named, [
        (hold.target, hold.name)
        for hold in found
        if not (hold.target == Target.GROUP and hold.name in named) and subject.named_in(hold.reason)
    ]


async def keeps_others(store: Store, name: str) -> bool:
    """Returns whether the pause of this group keeps tasks from running. It is not lifted then: an erasure starts
    nothing."""
    return bool(await store.find(Query(states=LIVE, group=name, limit=1, brief=True)))


async def count_holds(store: Store, subject: Subject) -> int:
    named, quoting = await holds_of(store, subject)
    return len(named) + len(quoting)
