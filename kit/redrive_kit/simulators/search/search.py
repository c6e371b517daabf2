"""Searches: pages in the order of redrive's key, and documents that have all of some words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redrive_kit.simulators.search.documents import Documents, Row, Wanted
from redrive_kit.simulators.search.refusal import Refusal, wrong

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
