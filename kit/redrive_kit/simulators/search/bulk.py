"""Bulk requests: lines of what is to be written, and an answer for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redrive_kit.simulators.search.documents import Documents
from redrive_kit.simulators.search.refusal import Refusal, unfit, wrong

LONGEST_ID = 512
_ACTIONS = ("index", "delete")
_KINDS = ("external", "external_gte")
_MARKS = {"{": "START_OBJECT", "[": "START_ARRAY", '"': "VALUE_STRING"}


@dataclass(slots=True, frozen=True)
class Action:
    """One thing to do: ``source`` is the line of the document."""

    op: str
    id: str
    version: int
    or_equal: bool
    source: bytes | None


def parsed(body: bytes) -> list[Action]:
    """Returns what a request asks for; one that cannot be understood is refused as a whole, and nothing is done."""
    if not body:
        raise Refusal(400, "parse_exception", "request body is required")
    if not body.endswith(b"\n"):
        raise wrong("The bulk request must be terminated by a newline [\\n]")
    found = list(_actions(body.split(b"\n")[:-1]))
    problems = [problem for one in found if (problem := _invalid(one)) is not None]
    if problems:
        listed = "".join(f" {number}: {problem};" for number, problem in enumerate(problems, 1))
        raise Refusal(400, "action_request_validation_exception", f"Validation Failed:{listed}")
    return found


def _actions(lines: Sequence[bytes]) -> Iterator[Action]:
    at = 0
    while at < len(lines):
        op, meta = _meta(lines[at], at + 1)
        source = lines[at + 1] if op == "index" and at + 1 < len(lines) else None
        yield Action(
            op, str(meta["_id"]), int(meta.get("version", 0)), meta.get("version_type") == "external_gte", source
        )
        at += 2 if op == "index" else 1


def _meta(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
    where = f"Malformed action/metadata line [{number}], expected"
    try:
        found = json.loads(line)
    except ValueError:
        raise wrong(f"{where} START_OBJECT but found [null]") from None
    if not isinstance(found, dict) or len(found) != 1:
        raise wrong(f"{where} START_OBJECT but found [{_MARKS.get(line[:1].decode(), 'VALUE_NUMBER')}]")
    [(op, meta)] = found.items()
    if op not in _ACTIONS:
        raise wrong(f"{where} one of [create, delete, index, update] but found [{op}]")
    if meta.get("version_type") not in _KINDS or "_id" not in meta:
        raise wrong("this server knows external versions of documents with an _id only")
    return op, meta


def _invalid(action: Action) -> str | None:
    size = len(action.id.encode())
    if size > LONGEST_ID:
        return f"id [{action.id}] is too long, must be no longer than {LONGEST_ID} bytes but was: {size}"
    if not 0 <= action.version < 2**63:
        return f"illegal version value [{action.version}] for version type [EXTERNAL_GTE]"
    return None


def written(
    documents: Documents,
    target: str,
    actions: Sequence[Action],
    require_alias: bool,
    trouble: Callable[[], Refusal | None],
) -> dict[str, Any]:
    """Does all of it, each by itself, and returns the answer. ``trouble``: what a document meets by chance."""
    items = []
    for action in actions:
        try:
            if (refusal := trouble()) is not None:
                raise refusal
            said = _done(documents, _index(documents, target, require_alias), action)
        except Refusal as error:
            said = {"_index": target, "_id": action.id, "status": error.status, "error": error.error()}
        items.append({action.op: said})
    errors = any("error" in next(iter(item.values())) for item in items)
    return {"took": 1, "errors": errors, "items": items}


def _index(documents: Documents, target: str, require_alias: bool) -> str:
    """Returns the index to write to; makes one that is missing, as servers do, unless an alias is asked for."""
    behind = documents.behind(target)
    if len(behind) > 1:
        raise wrong(f"no write index is defined for alias [{target}].")
    if require_alias and not behind:
        missing = f"no such index [{target}] and [require_alias] request flag is [true] and [{target}] is not an alias"
        raise Refusal(404, "index_not_found_exception", missing)
    if not behind and not documents.exists(target):
        documents.create(target, {})
    return behind[0] if behind else target


def _done(documents: Documents, name: str, action: Action) -> dict[str, Any]:
    known = documents.version(name, action.id)
    if known is not None and not (action.version > known[0] or (action.or_equal and action.version == known[0])):
        than = "higher than" if action.or_equal else "higher or equal to"
        reason = f"[{action.id}]: version conflict, current version [{known[0]}] is {than} the one provided"
        raise Refusal(409, "version_conflict_engine_exception", f"{reason} [{action.version}]")
    there = known is not None and known[1]
    if action.op == "delete":
        documents.delete(name, action.id, action.version)
        status, result = (200, "deleted") if there else (404, "not_found")
    else:
        documents.put(name, action.id, action.version, _source(action.source))
        status, result = (200, "updated") if there else (201, "created")
    return {"_index": name, "_id": action.id, "_version": action.version, "result": result, "status": status}


def _source(line: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(line or b"")
    except ValueError as error:
        raise unfit("failed to parse", str(error)) from None
    if not isinstance(found, dict):
        raise unfit("failed to parse", "a document is an object")
    return found
