"""Applies a Commit through anybody's driver, in a transaction that is theirs."""

from __future__ import annotations

from typing import Any, cast

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.stores.features import Features
from redrive.stores.sqlite.apply import apply
from redrive.stores.sqlite.session import Execute, Session


def apply_with(execute: Execute, commit: Commit, features: Features, now_us: int) -> Applied:
    """Applies what only adds; ``execute(sql, args)`` returns the rows, placeholders are ``?`` or ``?1``."""
    session = Session(cast(Any, _Connection(execute)), now_us, features)
    applied = apply(session, commit)
    session.tally.flush(execute)
    return applied


class _Connection:
    """As much of a ``sqlite3.Connection`` as a session needs."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def execute(self, sql: str, args: tuple[Any, ...] = ()) -> _Result:
        return _Result(self._execute, list(self._execute(sql, args)))


class _Result:
    def __init__(self, execute: Execute, rows: list[Any]) -> None:
        self._execute = execute
        self._rows = rows

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    @property
    def rowcount(self) -> int:
        ((changed,),) = self._execute("select changes()", ())
        return int(changed)
