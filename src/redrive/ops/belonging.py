"""What a task belongs to, in the words of its feature, the same for API, command line and console; and which tasks are
meant by the id of a batch. Mostly that is the id of a join; a feature may keep the two apart, and says then which."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from redrive.errors import BatchUnknown, Conflict, RedriveError
from redrive.kernel.feature import Belongs, Feature, Members
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Query
from redrive.kernel.task import Task

logger = logging.getLogger("redrive.features")


def belonging(task: Task, features: Iterable[Feature]) -> Belongs | None:
    """Returns what a task belongs to; None where its feature does not say, or nobody knows any more. One that raises
    must not hide the task."""
    if task.feature is None and task.join_id is not None:
        return next((one.groups.belongs(task.join_id) for one in features if one.groups is not None), None)
    feature = next((one for one in features if one.name == task.feature), None)
    if feature is None or feature.belongs is None or not task.facts:
        return None
    try:
        return feature.belongs(task.facts)
    except Exception:
        extra = {"event": "feature.belongs", "task_id": task.id}
        logger.exception("what a task of %s belongs to cannot be said", feature.name, extra=extra)
        return None


async def members_of(store: Store, features: Iterable[Feature], batch: str) -> Members:
    """Returns which members are meant; where no feature knows the id, those of the join of that id."""
    wanted = UUID(batch)
    for feature in features:
        if feature.groups is not None and (found := await feature.groups.members(store, wanted)) is not None:
            return found
    return Members(wanted)


async def is_batch(store: Store, features: Iterable[Feature], wanted: UUID) -> bool:
    """Returns whether an id is that of a batch, of tasks or of a feature: somebody may take it for a task's."""
    if await store.joins([wanted]):
        return True
    try:
        return (await members_of(store, features, str(wanted))).join != wanted
    except RedriveError:  # it is one, and has no tasks yet
        return True


async def check_members(store: Store, features: Iterable[Feature], join: str) -> None:
    """Refuses a join that nobody knows: "nothing matches" would be taken for good news. One that is not kept any more
    is known by its tasks."""
    if await store.joins([UUID(join)]) or await store.find(Query(join=join, limit=1, brief=True)):
        return
    lists = " or ".join(one.groups.listed for one in features if one.groups is not None)
    raise BatchUnknown(f"there is no batch {join}", hint=f"{lists} names the latest" if lists else None)


async def check_cancel(store: Store, features: Iterable[Feature], batch: str) -> None:
    """Refuses to cancel tasks of something that would go on without them."""
    found = await members_of(store, features, batch)
    if found.cancel is not None:
        raise Conflict(f"batch {batch} is not cancelled by its tasks: others would take their place", hint=found.cancel)
