"""An index of Elasticsearch or OpenSearch as a sink: an alias that is live, and indexes behind it.

Events go through an alias, which has to exist (``require_alias``): a server would make a missing index by itself, with
guessed types, and documents would be in an index that nobody knows."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redrive.errors import ConfigError, RedriveError
from redrive.kernel.classify import by_status
from redrive.kernel.retry_after import retry_after_of
from redrive.outbox.event import Event, Op
from redrive.outbox.sink import Hit, NoSuchIndex, Stored, TooLarge, Unfit, find_refused
from redrive.outbox.sinks.search_server import Refused, SearchServer
from redrive.outbox.verdict import DETERMINISTIC, Done, Failed, Retry, Superseded, Verdict

# Where our own fields are in a document: keys and versions are scanned by them.
FIELD = "_redrive"
LONGEST_ID = 512  # bytes; the server would refuse the whole request for one that is longer
CONFLICT = "version_conflict_engine_exception"
NO_INDEX = "index_not_found_exception"
# Refused with a 4xx, though nothing is wrong with the event: an index that an operator closed, or made read-only.
_WAITS = {NO_INDEX, "index_closed_exception", "cluster_block_exception"}
# The same, of an alias that somebody pointed to several indexes.
_NO_WRITE_INDEX = "no write index"
# Only what is read, so that the answer to thousands of documents is small.
FILTER = "items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
FIRST = "first"
PAGE = 1000
KEY, VERSION = f"{FIELD}.key", f"{FIELD}.version"
# How long the server itself remembers deleted versions; the relay's tombstones outlive that.
GC_DELETES = "1h"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_OURS = {"properties": {"key": {"type": "keyword"}, "version": {"type": "long"}}}


def encoded(event: Event) -> bytes | Failed:
    """Returns the lines of an event; a verdict, if it cannot be sent: one such event would spoil the whole request."""
    if len(event.key.encode("utf-8", "replace")) > LONGEST_ID:
        return _unfit(f"the key of an entity has at most {LONGEST_ID} bytes in a search server (entity type and id)")
    action: dict[str, Any] = {"_id": event.key, "version": event.order, "version_type": "external_gte"}
    if event.routing:
        action["routing"] = event.routing
    try:
        if event.op is Op.DELETE:
            return _line({"delete": action})
        return _line({"index": action}) + _line(_document(event))
    except (TypeError, ValueError, RecursionError) as error:
        return _unfit(f"the document cannot be written as JSON: {error}")


def _document(event: Event) -> dict[str, Any]:
    if not isinstance(event.payload, Mapping):
        raise TypeError(f"it is no object, but {type(event.payload).__name__}")
    if FIELD in event.payload:
        raise ValueError(f"it has a field {FIELD}, where redrive keeps key and version")
    return {**event.payload, FIELD: {"key": event.key, "version": event.version}}


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _unfit(message: str) -> Failed:
    return Failed(DETERMINISTIC, message)


def verdicts(answer: Mapping[str, Any], count: int) -> list[Verdict]:
    """Returns what a bulk answer says, in the order of the request. An answer with fewer items than were sent says
    nothing that could be trusted."""
    items = answer.get("items")
    if not isinstance(items, Sequence) or len(items) != count:
        found = len(items) if isinstance(items, Sequence) else "no"
        raise ConnectionError(f"the answer to a bulk request of {count} documents has {found} items")
    return [_verdict(item) for item in items]


def _verdict(item: Mapping[str, Any]) -> Verdict:
    [(op, said)] = item.items()
    status, error = int(said.get("status", 0)), said.get("error")
    if 200 <= status < 300:
        return Done()
    if error is None and op == "delete" and status == 404:
        return Done()
    kind, message = _told(error, status)
    if status == 409 and kind == CONFLICT:
        return Superseded()
    if kind in _WAITS or _NO_WRITE_INDEX in message:
        return Retry("unavailable", message)
    # Who is not let in (401, 403) is so by the server: the event is not wrong.
    if 400 <= status < 500 and status not in (401, 403, 408, 409, 429):
        return _unfit(message)
    return Retry(by_status(status).reason, message)


def _told(error: Any, status: int) -> tuple[str, str]:
    if not isinstance(error, Mapping):
        return "", str(error or f"HTTP {status}")
    kind, cause = str(error.get("type") or ""), error.get("caused_by")
    parts = [kind, error.get("reason"), cause.get("reason") if isinstance(cause, Mapping) else None]
    return kind, ": ".join(str(part) for part in parts if part)


def all_of(error: Refused) -> Retry:
    """Returns the verdict on every event of a request that was refused as a whole. That says nothing about any of them,
    so they wait: a changed password, or a missing index, does not fail what an operator can mend."""
    reason = "unavailable" if error.kind in _WAITS else by_status(error.status_code).reason
    return Retry(reason, str(error), retry_after_of(error.headers, datetime.now(UTC)), whole=True)


class SearchIndex:
    """Documents of a projection in a search server, which compares versions but forgets those of deleted documents."""

    remembers_deletes = False
    compares_versions = True

    def __init__(
        self,
        server: SearchServer,
        alias: str,
        *,
        mappings: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """``mappings`` and ``settings`` are those of new indexes, as the server has them."""
        if not _ALIAS.fullmatch(alias):
            raise ConfigError(f"{alias!r} is no name of an index", hint="lower-case letters, digits, '.', '_' and '-'")
        self._server = server
        self._alias = alias
        self._mappings = dict(mappings or {})
        self._settings = dict(settings or {})
        self._is_alias: bool | None = None  # None: not looked yet. False: an index that was there before redrive

    async def write(self, events: Sequence[Event], index: str | None = None) -> Sequence[Verdict]:
        """Writes what can be sent; the others have their verdicts already."""
        lines = [encoded(event) for event in events]
        sent = [one for one in lines if isinstance(one, bytes)]
        said = iter(await find_refused(sent, lambda some: self._send(some, index)) if sent else ())
        return [one if isinstance(one, Failed) else next(said) for one in lines]

    async def check(self) -> None:
        try:
            await self._server.ask("HEAD", f"/{self._alias}")
        except Refused as error:
            if error.status_code != 404:  # made with the first write
                raise

    async def close(self) -> None:
        await self._server.close()

    async def identity(self) -> str | None:
        """Returns the server's own id of the index; None for a user who may not see it."""
        live = await self._live()
        if not live:
            return ""
        try:
            answer = await self._server.ask("GET", f"/{live[0]}", params={"filter_path": "*.settings.index.uuid"})
            return str(answer[live[0]]["settings"]["index"]["uuid"])
        except Refused as error:
            if error.status_code == 404:
                return ""
            if error.status_code in (401, 403):
                return None
            raise

    async def _send(self, lines: Sequence[bytes], index: str | None) -> Sequence[Verdict]:
        try:
            path, params = await self._target(index)
        except Refused as error:
            return [all_of(error)] * len(lines)
        try:
            answer = await self._server.ask("POST", path, b"".join(lines), {"filter_path": FILTER, **params})
        except Refused as error:
            if error.status_code == 413:
                raise TooLarge(str(error)) from error
            if error.status_code == 400:  # for the sake of one of them
                raise Unfit(str(error)) from error
            return [all_of(error)] * len(lines)
        found = verdicts(answer, len(lines))
        if any(isinstance(one, Retry) and one.reason == "unavailable" for one in found):
            self._is_alias = None  # somebody may have removed the index: look again
        return found

    async def _target(self, index: str | None) -> tuple[str, dict[str, str]]:
        """Returns where events go; makes the live index, if nobody has."""
        if index is not None:
            return f"/{self._write_alias(index)}/_bulk", {"require_alias": "true"}
        if self._is_alias is None:
            self._is_alias = await self._look()
        return f"/{self._alias}/_bulk", {"require_alias": "true"} if self._is_alias else {}

    async def _look(self) -> bool:
        """Returns whether the live name is an alias; makes the first index, if there is neither."""
        live = await self._live()
        if not live:
            # With a fixed name: several workers that look at once make one index. The alias by itself is for one that
            # was there, and that somebody took the alias from.
            await self._create(FIRST, {self._alias: {}})
            await self._change_aliases([{"add": {"index": self._named(FIRST), "alias": self._alias}}])
        return self._alias not in live

    async def _live(self) -> list[str]:
        """Returns the indexes behind the live name: none, one, or itself if it is no alias."""
        try:
            return list(await self._server.ask("GET", f"/_alias/{self._alias}"))
        except Refused as error:
            if error.status_code != 404:
                raise
        return [self._alias] if await self._exists(self._alias) else []

    async def _exists(self, name: str) -> bool:
        try:
            await self._server.ask("HEAD", f"/{name}")
        except Refused as error:
            if error.status_code != 404:
                raise
            return False
        return True

    # -- rebuild and verify ----------------------------------------------------------------------------------------

    async def create(self, index: str) -> None:
        await self._create(index, {})

    async def _create(self, index: str, aliases: Mapping[str, Any]) -> None:
        own = {**self._mappings.get("properties", {}), FIELD: _OURS}
        body = {
            "settings": {"index.gc_deletes": GC_DELETES, **self._settings},
            "mappings": {**self._mappings, "properties": own},
            # A rebuild writes through this one, so that what comes late does not bring a dropped index back.
            "aliases": {self._write_alias(index): {}, **aliases},
        }
        try:
            await self._server.ask("PUT", f"/{self._named(index)}", body)
        except Refused as error:
            if error.kind != "resource_already_exists_exception":
                raise

    async def refresh(self, index: str | None = None) -> None:
        await self._server.ask("POST", f"/{self._named(index)}/_refresh")

    async def scan(self, index: str | None = None, after: str = "") -> AsyncIterator[Stored]:
        """Reads page by page in the order of a field of ours: keys are unique and do not change, so a page after the
        last key needs no snapshot on the server."""
        while True:
            hits = await self._hits(_page({"range": {KEY: {"gt": after}}}), index)
            for hit in hits:
                yield _stored(hit)
            if len(hits) < PAGE:
                return
            after = hits[-1]["sort"][0]

    async def find(self, keys: Sequence[str], index: str | None = None) -> Sequence[Stored]:
        found: list[Stored] = []
        for at in range(0, len(keys), PAGE):
            found += map(_stored, await self._hits(_page({"terms": {KEY: list(keys[at : at + PAGE])}}), index))
        return found

    async def swap(self, index: str) -> None:
        """Moves the alias and removes what was behind it, in one step of the server's."""
        new, old = self._named(index), await self._live()
        if old == [new]:
            return
        gone = [{"remove_index": {"index": one}} for one in old if one != new]
        try:
            await self._change_aliases([{"add": {"index": new, "alias": self._alias}}, *gone])
        except Refused as error:
            if error.status_code == 404 and not await self._exists(new):
                raise NoSuchIndex(new) from error
            raise
        self._is_alias = True

    async def _change_aliases(self, actions: Sequence[Mapping[str, Any]]) -> None:
        await self._server.ask("POST", "/_aliases", {"actions": actions})

    async def drop(self, index: str) -> None:
        name = self._named(index)
        if name in await self._live():
            raise RedriveError(f"the index {name} is the live one of {self._alias}, and is not dropped")
        try:
            await self._server.ask("DELETE", f"/{name}")
        except Refused as error:
            if error.status_code != 404:
                raise

    async def search(self, text: str, limit: int = 10) -> list[Hit]:
        """Returns documents that have all of these words, in any field."""
        words = {"query": text, "default_operator": "and", "lenient": True}
        try:
            hits = await self._hits({"size": limit, "query": {"simple_query_string": words}})
        except Refused as error:
            if error.status_code != 404:
                raise
            raise RedriveError(
                f"the search server has no index {self._alias}",
                hint="the first event that a worker writes makes it; one that somebody has removed is rebuilt",
            ) from error
        return [_hit(hit) for hit in hits]

    async def _hits(self, query: Mapping[str, Any], index: str | None = None) -> Sequence[Mapping[str, Any]]:
        answer = await self._server.ask("POST", f"/{self._named(index)}/_search", query)
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise ConnectionError("a search answered for a part of the index only")
        hits: Sequence[Mapping[str, Any]] = answer["hits"]["hits"]
        return hits

    def _named(self, index: str | None) -> str:
        if index is None:
            return self._alias
        if not _NAME.fullmatch(index):
            raise ConfigError(f"{index!r} is no name of an index", hint="lower-case letters, digits and '_'")
        return f"{self._alias}-{index}"

    def _write_alias(self, index: str) -> str:
        return f"{self._named(index)}.write"


def _page(query: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a search for keys and versions, in the order of keys."""
    shown = {"_source": False, "docvalue_fields": [VERSION], "version": True, "track_total_hits": False}
    return {"size": PAGE, "query": query, "sort": [{KEY: "asc"}], **shown}


def _stored(hit: Mapping[str, Any]) -> Stored:
    version = int(hit["fields"][VERSION][0])
    return Stored(hit["sort"][0], version, max(int(hit["_version"]) - version, 0))


def _hit(hit: Mapping[str, Any]) -> Hit:
    document = dict(hit["_source"])
    ours = document.pop(FIELD, {})
    return Hit(ours.get("key", hit["_id"]), float(hit["_score"] or 0.0), document)
