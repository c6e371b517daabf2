"""Puts the failed tasks of a round away when its items are started again: what is listed as failed is failed now.

They are given up as by ``redrive forget``, as an operation: its first piece lands with the new round, so that of most
batches nothing is left over, and the workers do the rest of a large one.
"""

from __future__ import annotations

from redrive.batches.remote.model import RemoteBatch
from redrive.feature import Audit, Commit, Store
from redrive.ids import new_id
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import TASKS_PER_PIECE, Forget, Operation

LAST_FAILURE = 2**62  # all of them are meant: none of that round can fail again


async def put_away(store: Store, batch: RemoteBatch, who: str) -> Commit:
    """Returns what puts the failed tasks of a batch's last round away; nothing where none is failed."""
    if batch.join_id is None:
        return Commit()
    which = FailureFilter(join=str(batch.join_id))
    first = await store.failed_ids(which, limit=TASKS_PER_PIECE)
    if not first:
        return Commit()
    why = f"started again in round {batch.round + 1} of batch {batch.id}"
    number = await store.count_failed(which)
    made = Operation(str(new_id()), Forget(LAST_FAILURE), which, who, why, number)
    piece = made.carry_out(first, None)
    begun = Audit(who, "OPERATION_START", why, None, made.id, target=f"operation:{made.id}")
    return Commit(transitions=piece.transitions, bulk=piece.bulk, puts=piece.puts, audits=[begun])
