"""What a task belongs to, in the words of its feature: the same for API, command line and console."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redrive.kernel.feature import Belongs, Feature
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
