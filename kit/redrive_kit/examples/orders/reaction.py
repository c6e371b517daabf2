"""What follows from the moves of a parcel: its row, and its money; and which order it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.feature import Belongs, Effects, Landed, Posting, Rows, State, Transition

SHOP = "shop"
# Where the price of a parcel lies while its task is in a state; one that is failed may be retried, so it waits.
_REFUNDED, _EARNED = (State.CANCELLED,), (State.COMPLETED,)


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Runs inside the transaction of the move: it looks at nothing but what it is given."""
    row = {"task": str(landed.task_id), "state": landed.state}
    before, after = _place(landed.was, landed), _place(landed.state, landed)
    if before == after:
        return Effects(rows=[Rows("orders", "parcel_moved", (row,))])
    price = landed.facts["price"]
    # A parcel may be given up, retried and given up again: each of these moves is one of its own.
    key = f"parcel:{landed.task_id}:{landed.replay_count}:{landed.state}"
    return Effects(
        rows=[Rows("orders", "parcel_moved", (row,))],
        postings=[Posting(key, ((before, -price), (after, price)), f"parcel {landed.state}")],
    )


def belongs(facts: Mapping[str, Any]) -> Belongs:
    """Returns the order that a parcel belongs to."""
    return Belongs(f"order {facts['order']}", f"/orders/{facts['order']}")


def _place(state: State, landed: Landed) -> str:
    if state in _EARNED:
        return SHOP
    return f"customer:{landed.scope}" if state in _REFUNDED else held(landed.facts["order"])


def held(order: str) -> str:
    return f"held:{order}"
