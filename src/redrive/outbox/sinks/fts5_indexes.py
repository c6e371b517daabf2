"""The indexes of a full-text sink: tables of one file, of which one is live. All of it runs in the file's thread."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from redrive.errors import ConfigError
from redrive.outbox.event import Event
from redrive.outbox.sink import NoSuchIndex
from redrive.outbox.sinks.fts5_file import transaction
from redrive.outbox.sinks.fts5_rows import row_of
from redrive.outbox.verdict import Done, Superseded, Verdict
from redrive.stores.sql import statements

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
FIRST = "live"


def checked(name: str) -> str:
    """Returns the name of an index, if it can be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a full-text index cannot be named {name!r}", hint="small letters, digits and _")
    return name


@cache
def _sql(name: str, documents: str) -> str:
    text = statements("redrive.outbox.sinks", "fts5.sql")[name]
    return text.replace("{docs}", f"{documents}_docs").replace("{text}", f"{documents}_text")


class Fts5Indexes:
    """The indexes of one name: several sinks may share a file."""

    def __init__(self, name: str) -> None:
        self._name = checked(name)
        self._made: set[str] = set()

    def prepare(self, db: sqlite3.Connection) -> None:
        """Makes the table that says which index is live. A new connection may be to a new file."""
        self._made.clear()
        db.execute(_sql("settings", ""))

    def live(self, db: sqlite3.Connection) -> str:
        """Returns the live index; the first one is made when somebody asks for it."""
        row = db.execute(_sql("live", ""), (self._name,)).fetchone()
        name = FIRST if row is None else str(row[0])
        if name not in self._made:
            self.make(db, name)
        return name

    def identity(self, db: sqlite3.Connection) -> str:
        """Returns what the file is known by; it is drawn when somebody first asks."""
        name = f"{self._name}:identity"
        with transaction(db):
            db.execute(_sql("draw_identity", ""), (name,))
            return str(db.execute(_sql("live", ""), (name,)).fetchone()[0])

    def make(self, db: sqlite3.Connection, index: str) -> None:
        """Makes the tables of an index, as far as they are not there."""
        with transaction(db):
            db.execute(self._sql("docs", index))
            db.execute(self._sql("text", index))
            columns = [name for (name,) in db.execute(_sql("columns", ""), (f"{self._name}_{index}_docs",))]
            if "deleted_at" not in columns:
                db.execute(self._sql("add_deleted_at", index))
                db.execute(self._sql("date_deleted", index))
            if "base" not in columns:
                db.execute(self._sql("add_base", index))
            db.execute(self._sql("deleted_index", index))
        self._made.add(index)

    def has_pairs(self, db: sqlite3.Connection) -> bool:
        """Returns whether all that the live index has was written as pairs of characters."""
        row = db.execute(_sql("pairs", ""), (f"{self._name}_{self.live(db)}_docs",)).fetchone()
        return row is not None and bool(row[0])

    def execute(self, db: sqlite3.Connection, statement: str, index: str | None, *args: Any) -> sqlite3.Cursor:
        """Runs a statement about an index; None: the live one."""
        return db.execute(self._sql(statement, self._chosen(db, index)), args)

    def remove(self, db: sqlite3.Connection, index: str) -> None:
        """Removes the tables of an index that is not the live one."""
        with transaction(db):
            if self.live(db) != checked(index):
                self._drop(db, index)

    def switch(self, db: sqlite3.Connection, index: str) -> None:
        """Makes an index the live one, and drops the old one."""
        with transaction(db):
            old = self.live(db)
            if db.execute(_sql("there", ""), (f"{self._name}_{checked(index)}_docs",)).fetchone() is None:
                raise NoSuchIndex(index)
            db.execute(_sql("set_live", ""), (self._name, checked(index)))
            if old != index:
                self._drop(db, old)

    def write(self, db: sqlite3.Connection, events: Sequence[Event], index: str | None) -> list[Verdict]:
        """Writes what is newer than what is there; returns one verdict for each event."""
        with transaction(db):
            name = self._chosen(db, index)
            keys = json.dumps([event.key for event in events])
            known = {key: found for key, *found in db.execute(self._sql("known", name), (keys,))}
            newer = [event for event in events if event.key not in known or known[event.key][1] < event.order]
            old = [known[event.key] for event in newer if event.key in known]
            words = ((row, body) for row, _, deleted, body in old if not deleted)
            db.executemany(self._sql("forget_words", name), words)
            db.executemany(self._sql("add", name), (row_of(event) for event in newer if event.key not in known))
            changed = [event for event in newer if event.key in known]
            db.executemany(self._sql("change", name), ((*row_of(event)[1:], known[event.key][0]) for event in changed))
            db.execute(self._sql("learn_words", name), (json.dumps([event.key for event in newer]),))
        written = {event.id for event in newer}
        return [Done() if event.id in written else Superseded() for event in events]

    def _chosen(self, db: sqlite3.Connection, index: str | None) -> str:
        return self.live(db) if index is None else checked(index)

    def _sql(self, statement: str, index: str) -> str:
        return _sql(statement, f"{self._name}_{index}")

    def _drop(self, db: sqlite3.Connection, index: str) -> None:
        db.execute(self._sql("drop_text", index))
        db.execute(self._sql("drop_docs", index))
        self._made.discard(index)
