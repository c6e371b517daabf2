"""The feature that the suite of reactions brings along: it writes down what it was told, and does as its facts say."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from redrive.kernel.audit import Audit
from redrive.kernel.feature import Feature
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.kernel.task import NewTask, State

WORLD = "system:world"


# What a database, or a store, finds wrong with what a feature adds.
BROKEN = {
    "null": [Rows("probe", "seen", ({"task": "nobody"},))],
    "no such statement": [Rows("probe", "nowhere", ({},))],
    "no such table": [Rows("probe", "missing", ({},))],
    "no effects": [],
    "no audit": [],
    "no json": [Rows("probe", "seen", ({"task": object()},))],
}


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Money and a following task at a completion; a row for every move."""
    if landed.facts.get("broken") == "no effects":
        return {"rows": []}  # type: ignore[return-value]
    if landed.facts.get("broken") == "no audit":
        return Effects(audits=[Audit("probe", "PROBE_DONE", after={"at": object()})])
    if landed.facts.get("rubbish"):
        rubbish: dict[str, Any] = {landed.facts["rubbish"]: [object()]}
        return Effects(**rubbish)
    if landed.facts.get("raise on") == landed.state:
        raise ValueError("the probe does not like this")
    seen = {"task": str(landed.task_id), "was": landed.was, "state": landed.state, "event": transition.event}
    rows = [Rows(PROBE.name, "seen", (seen,)), *BROKEN.get(landed.facts.get("broken", ""), ())]
    if landed.state is not State.COMPLETED:
        return Effects(rows=rows)
    price = landed.facts.get("price", 0)
    entries = ((landed.facts.get("account", WORLD), -price), ("revenue", price))
    following = [NewTask(UUID(landed.facts["next"]), "NEXT", "next", None)] if "next" in landed.facts else []
    return Effects(
        tasks=[*following, *_grown(landed)],
        postings=[Posting(f"charge:{landed.task_id}", entries)] if price else [],
        audits=[Audit("probe", "PROBE_DONE", None, landed.task_id)],
        rows=rows,
        joins=[_inner(landed)] if "inner" in landed.facts else [],
        closes=[UUID(join_id) for join_id in landed.facts.get("close", ())],
    )


def _grown(landed: Landed) -> list[NewTask]:
    """Further members of the task's own join, or of the one that it opens."""
    join = UUID(landed.facts["inner"]) if "inner" in landed.facts else landed.join
    return [NewTask(UUID(task_id), "GROWN", "grown", None, join=join) for task_id in landed.facts.get("grow", ())]


def _inner(landed: Landed) -> NewJoin:
    """A join whose end is a member of the task's own."""
    end = NewTask(UUID(landed.facts["end"]), "INNER_ENDED", "grown", None, join=landed.join)
    return NewJoin(UUID(landed.facts["inner"]), on_complete=end)


PROBE = Feature("probe", __name__, react)
__all__ = ["PROBE"]
