"""The indexes, aliases and documents of a simulated search server, in SQLite: in memory, or in a file that is there
after a restart, or a kill."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redrive.stores.sql import statements
from redrive_kit.simulators.search.mapping import learned, types_of
from redrive_kit.simulators.search.refusal import Refusal, no_index, wrong

_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
DEFAULT_GC_DELETES = "60s"


@dataclass(slots=True, frozen=True)
class Row:
    """A document, as it is found."""

    id: str
    version: int
    source: dict[str, Any]
    key: str | None


@dataclass(slots=True, frozen=True)
class Wanted:
    """What a search asks for."""

    after: str | None = None
    upto: str | None = None
    keys: Sequence[str] | None = None
    words: Sequence[str] = ()


class Documents:
    """What a server has. Writes of one request are one transaction."""

    def __init__(self, file: str = ":memory:", clock: Callable[[], float] = time.time) -> None:
        self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = off")  # survives a killed server; more is not asked of it
        self._sql = statements("redrive_kit.simulators.search", "documents.sql")
        self._db.executescript(self._sql["tables"])
        self._clock = clock
        self._refreshed: dict[str, float] = {}

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    # -- indexes and aliases ---------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        return self._db.execute("select 1 from indexes where name = ?", (name,)).fetchone() is not None

    def behind(self, alias: str) -> list[str]:
        """Returns the indexes that an alias points to."""
        return [row[0] for row in self._db.execute("select name from aliases where alias = ? order by name", (alias,))]

    def named(self, target: str) -> list[str]:
        """Returns the indexes of an index or alias."""
        found = [target] if self.exists(target) else self.behind(target)
        if not found:
            raise no_index(target)
        return found

    def create(self, name: str, body: Mapping[str, Any]) -> None:
        if not _NAME.fullmatch(name):
            raise Refusal(400, "invalid_index_name_exception", f"Invalid index name [{name}], must be lowercase")
        if self.exists(name):
            raise Refusal(400, "resource_already_exists_exception", f"index [{name}] already exists")
        if self.behind(name):
            raise Refusal(400, "invalid_index_name_exception", f"Invalid index name [{name}], already exists as alias")
        mappings = body.get("mappings", {})
        values = (name, json.dumps(types_of(mappings)), mappings.get("dynamic") == "strict", _gc_deletes(body))
        self._db.execute("insert into indexes (name, types, strict, gc_deletes) values (?, ?, ?, ?)", values)
        self._db.execute("insert into identities (name, uuid) values (?, lower(hex(randomblob(11))))", (name,))
        for alias in body.get("aliases", {}):
            self.add_alias(name, alias)

    def identity(self, name: str) -> str:
        """Returns what an index is known by: another that gets its name has another."""
        row = self._db.execute("select uuid from identities where name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def add_alias(self, name: str, alias: str) -> None:
        if not self.exists(name):
            raise no_index(name)
        if self.exists(alias):
            raise Refusal(400, "invalid_alias_name_exception", f"an index exists with the same name [{alias}]")
        self._db.execute("insert or ignore into aliases (alias, name) values (?, ?)", (alias, name))

    def remove_alias(self, name: str, alias: str) -> None:
        if name not in self.behind(alias):
            raise Refusal(404, "aliases_not_found_exception", f"aliases [{alias}] missing")
        self._db.execute("delete from aliases where alias = ? and name = ?", (alias, name))

    def remove_index(self, name: str) -> None:
        if self.behind(name):
            instead = "specify the corresponding concrete indices instead."
            raise wrong(f"The provided expression [{name}] matches an alias, {instead}")
        if not self.exists(name):
            raise no_index(name)
        for table in ("indexes", "identities", "aliases", "documents", "found"):
            self._db.execute(f"delete from {table} where name = ?", (name,))  # noqa: S608 - one of these

    # -- documents -------------------------------------------------------------------------------------------------

    def version(self, name: str, key: str) -> tuple[int, bool] | None:
        """Returns the version of a document, and whether it is there; None where the server knows nothing of it: also
        once it has forgotten that it was deleted."""
        row = self._db.execute(
            "select version, deleted_at, gc_deletes from documents join indexes using (name) where name = ? and id = ?",
            (name, key),
        ).fetchone()
        if row is None or (row[1] is not None and row[1] + row[2] < self._clock()):
            return None
        return row[0], row[1] is None

    def put(self, name: str, key: str, version: int, source: dict[str, Any]) -> None:
        """Writes a document; raises a Refusal if its fields are of other types."""
        types, strict = self._db.execute("select types, strict from indexes where name = ?", (name,)).fetchone()
        known = json.loads(types)
        new = learned(known, source, key, bool(strict))
        if new:
            self._db.execute("update indexes set types = ? where name = ?", (json.dumps({**known, **new}), name))
        ours = source.get("_redrive")
        sorted_by = ours.get("key") if isinstance(ours, dict) else None
        self._db.execute(self._sql["put"], (name, key, version, json.dumps(source), sorted_by, None))

    def delete(self, name: str, key: str, version: int) -> None:
        self._db.execute(self._sql["put"], (name, key, version, None, None, self._clock()))

    def get(self, target: str, key: str) -> Row | None:
        """Returns a document as it is now, whether it was refreshed or not."""
        for name in self.named(target):
            row = self._db.execute(
                "select id, version, source, key from documents where name = ? and id = ? and deleted_at is null",
                (name, key),
            ).fetchone()
            if row is not None:
                return _row(row)
        return None

    def refresh(self, name: str) -> None:
        """Lets searches find what was written."""
        self._db.execute(self._sql["refresh_new"], (name,))
        self._db.execute(self._sql["refresh_gone"], (name,))
        self._db.execute("update documents set fresh = 0 where name = ? and fresh", (name,))
        self._refreshed[name] = self._clock()

    def refresh_if_due(self, name: str, interval: float) -> None:
        if self._refreshed.get(name, 0.0) + interval <= self._clock():
            self.refresh(name)

    def search(self, names: Sequence[str], wanted: Wanted, limit: int) -> list[Row]:
        """Returns what is asked for, in the order of redrive's key."""
        words, keys = json.dumps(wanted.words), None if wanted.keys is None else json.dumps(wanted.keys)
        asked = (json.dumps(names), wanted.after, wanted.upto, words, limit, keys)
        return [_row(row) for row in self._db.execute(self._sql["search"], asked)]

    def count(self, names: Sequence[str]) -> int:
        marks = json.dumps(names)
        row = self._db.execute("select count(*) from found where name in (select value from json_each(?))", (marks,))
        return int(row.fetchone()[0])


def _row(row: tuple[str, int, str, str | None]) -> Row:
    return Row(row[0], row[1], json.loads(row[2]), row[3])


def _gc_deletes(body: Mapping[str, Any]) -> float:
    settings = body.get("settings", {})
    nested = settings.get("index", {})
    given = settings.get("index.gc_deletes", settings.get("gc_deletes", nested.get("gc_deletes", DEFAULT_GC_DELETES)))
    found = _TIME.fullmatch(str(given))
    if found is None:
        raise wrong(f"failed to parse setting [index.gc_deletes] with value [{given}] as a time value")
    return float(found[1]) * _UNITS[found[2]]


KEY = "_redrive.key"
VERSION = "_redrive.version"
LARGEST_PAGE = 10_000
_WORD = re.compile(r"\w+")


def searched(documents: Documents, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to a search; refuses what redrive's sinks do not ask for."""
    size = int(body.get("size", 10))
    if size > LARGEST_PAGE:
        raise wrong(f"Result window is too large, from + size must be less than or equal to: [{LARGEST_PAGE}]")
    rows = documents.search(documents.named(target), _query(body.get("query", {"match_all": {}})), size)
    hits = [_hit(row, body) for row in rows]
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"max_score": None, "hits": hits}}


def _query(query: Mapping[str, Any]) -> Wanted:
    """Returns what is asked for: a range of keys, some keys, or words in lower case."""
    match query:
        case {"match_all": {}}:
            return Wanted()
        case {"range": {"_redrive.key": {"gt": str(after), "lte": str(upto)}}}:
            return Wanted(after, upto)
        case {"range": {"_redrive.key": {"gt": str(after)}}}:
            return Wanted(after)
        case {"terms": {"_redrive.key": [*keys]}}:
            return Wanted(keys=keys)
        case {"simple_query_string": {"query": str(text)}}:
            return Wanted(words=[word.lower() for word in _WORD.findall(text)])
    raise Refusal(400, "parsing_exception", f"this server does not know the query [{next(iter(query), '')}]")


def _hit(row: Row, body: Mapping[str, Any]) -> dict[str, Any]:
    hit: dict[str, Any] = {"_id": row.id, "_score": None if body.get("sort") else 1.0}
    if body.get("_source", True):
        hit["_source"] = row.source
    if body.get("sort"):
        if body["sort"] != [{KEY: "asc"}]:
            raise Refusal(400, "parsing_exception", f"this server sorts by {KEY} only")
        hit["sort"] = [row.key]
    if VERSION in body.get("docvalue_fields", ()):
        hit["fields"] = {VERSION: [row.source["_redrive"]["version"]]}
    if body.get("version"):
        hit["_version"] = row.version
    return hit
