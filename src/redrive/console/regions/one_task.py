"""The state of one task, and whether its page is still what it was."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.console.sample import Sample
from redrive.console.templates_env import render
from redrive.ops.inspect import parse_id
from redrive.ops.operator import Operator


def sampler(task_id: str) -> Sample:
    which = parse_id(task_id)

    async def sample(operator: Operator) -> Mapping[str, str]:
        seen = await operator.tasks.seen(which)
        state = seen.partition(":")[0]
        return {"#state": render("regions/state.html", operator, state=state), "changed": seen}

    return sample
