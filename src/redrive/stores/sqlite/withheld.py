"""Asks features which of their tasks are not to be retried, in the transaction of the retry."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from uuid import UUID

from redrive.kernel.retry_guard import Withheld, by_feature
from redrive.stores.sqlite.session import Session, dumps


def withheld(session: Session, tasks: Sequence[tuple[UUID, str | None, str | None]]) -> dict[UUID, Withheld]:
    """Returns those of these tasks, given with their feature and facts, that are withheld; the session notes them."""
    guards = session.features.guards
    known = [(task_id, of, {} if facts is None else json.loads(facts)) for task_id, of, facts in tasks if of in guards]
    found: dict[UUID, Withheld] = {}
    for feature, asked in by_feature(guards, known).items():
        cursor = session.connection.cursor()
        cursor.row_factory = sqlite3.Row
        statement = session.features.statement(feature, guards[feature].statement)
        found |= guards[feature].withheld([dict(row) for row in cursor.execute(statement, (dumps(asked),))])
    session.withheld |= found
    return found
