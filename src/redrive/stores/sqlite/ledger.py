"""Posts movements of money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from redrive.errors import InvalidInput
from redrive.kernel.ledger import Posting
from redrive.stores.refusals import NEVER_NEGATIVE, below_zero, uncountable
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import Session, dumps

_OVERFLOW = "REAL value in INTEGER column"  # what a sum beyond 2^63 becomes
SQL = statements("redrive.stores.sqlite", "apply.sql")


def post(session: Session, postings: Iterable[Posting]) -> set[str]:
    """Posts movements of money, each at most once; returns the keys that were posted before."""
    return {posting.key for posting in postings if not _post(session, posting)}


def _post(session: Session, posting: Posting) -> bool:
    sums: Counter[str] = Counter()
    for account, amount in posting.entries:
        sums[account] += amount
    if not session.run(SQL["posting"], posting.key, session.now, posting.note):
        before: Counter[str] = Counter()
        for account, amount in session.rows(SQL["posted"], posting.key):
            before[account] += amount
        if {name: n for name, n in before.items() if n} != {name: n for name, n in sums.items() if n}:
            raise InvalidInput(
                f"the key {posting.key!r} was posted before, with other entries",
                hint="a key names one movement of money, once",
            )
        return False
    changes = dumps(list(sums.items()))
    session.run(SQL["accounts"], changes)
    try:
        session.run(SQL["balances"], changes)
    except Exception as error:  # by whatever driver: the connection may be the caller's own
        if _OVERFLOW in str(error) and (full := session.row(SQL["uncountable"], changes)) is not None:
            raise uncountable(full[0]) from error
        if NEVER_NEGATIVE not in str(error):
            raise
        found = session.row(SQL["overdrawn"], changes)
        raise below_zero(found and found[0]) from error
    session.run(SQL["entries"], posting.key, dumps(posting.entries))
    return True
