"""Which items nobody may retry by themselves: those of a round that has ended. Their money is settled, so they are
started again only with a new charge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.kernel.retry_guard import RetryGuard, Withheld


def about(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the batch and the round of an item; None of another task."""
    return {"batch": facts["batch"], "round": facts["round"]} if "ordinal" in facts else None


def told(row: Mapping[str, Any]) -> Withheld:
    """Returns why an item is not retried, and what to do instead."""
    batch, state = row["batch"], row["state"]
    if state is None:
        return Withheld(f"its batch {batch} is not kept any more", "create a new batch of what is still wanted")
    if row["round"] != row["meant"]:
        why = f"its batch {batch} has started it again, in round {row['round']}"
        return Withheld(why, f"redrive batch items {batch} shows what became of it")
    if state == "processing":
        why = f"its batch {batch} is about to be settled"
        return Withheld(why, f"then redrive batch retry-failed {batch} starts its failed items again")
    why = f"its batch {batch} is settled ({state})"
    return Withheld(why, f"redrive batch retry-failed {batch} starts its failed items again, as a new charge")


GUARD = RetryGuard("remote_closed", about, told)
