"""Posts movements of money."""

from __future__ import annotations

from collections import Counter

from redrive.kernel.ledger import Posting
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "apply.sql")


def post(session: Session, posting: Posting) -> bool:
    """Posts one movement of money; False when the key was posted before."""
    if not session.run(SQL["posting"], posting.key, session.now, posting.note):
        return False
    sums: Counter[str] = Counter()
    for account, amount in posting.entries:
        sums[account] += amount
    changes = dumps(list(sums.items()))
    session.run(SQL["accounts"], changes)
    session.run(SQL["balances"], changes)
    session.run(SQL["entries"], posting.key, dumps(posting.entries))
    return True
