"""What lands with the moves of a delivery: its row, since when its endpoint fails, and an endpoint that is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.kernel.audit import Audit
from redrive.kernel.feature import Belongs
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.kernel.task import State

GONE = "WEBHOOK_ENDPOINT_GONE"
_ENDED = {State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}
# Moves that say something about the endpoint. A lease that ran out, or an operator, does not.
_JUDGED = {Event.COMPLETE: True, Event.RETRY: False, Event.FAIL: False}


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Runs inside the transaction of the move."""
    endpoint = landed.facts.get("endpoint")
    if endpoint is None:  # erased
        return None
    moved = {"task": str(landed.task_id), "state": _ENDED.get(landed.state, "pending")}
    rows = [Rows("webhooks", "delivery_moved", (moved,))]
    ok = _JUDGED.get(transition.event)
    gone = transition.failure is not None and transition.failure.code == GONE
    if ok is not None:
        rows.append(Rows("webhooks", "endpoint_settled", ({"endpoint": endpoint, "ok": ok, "gone": gone},)))
    return Effects(rows=rows, audits=[_given_up(endpoint, landed)] if gone else [])


def _given_up(endpoint: str, landed: Landed) -> Audit:
    return Audit(
        "redrive",
        "WEBHOOK_ENDPOINT_DISABLED",
        "it answered 410 Gone",
        landed.task_id,
        target=f"webhook:{endpoint}",
        scope=landed.scope,
    )


def belongs(facts: Mapping[str, Any]) -> Belongs | None:
    """Returns the endpoint that a delivery goes to."""
    endpoint = facts.get("endpoint")
    return None if endpoint is None else Belongs(f"webhook endpoint {endpoint}", f"/webhooks/endpoints/{endpoint}")
