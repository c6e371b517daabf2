"""Refuses a body larger than any task before it is read, and one of very many values before it is parsed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.api.problems import problem
from redrive.kernel.task import MAX_PAYLOAD_BYTES

LARGEST_BODY_BYTES = (
    MAX_PAYLOAD_BYTES * 2 + 65_536
)  # a payload may be written with more characters than it is stored with
SMALL_BODY_BYTES = 262_144
MOST_CONTAINERS, MOST_VALUES = 20_000, 50_000
# One that does not end goes to the end of the body. Possessive: nothing is looked at twice, whatever stands there.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.S)
# What senders call JSON lines; the first is the name that is documented.
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_AS_LINES = "send the items as JSON lines, with all else in the query: Content-Type: application/x-ndjson"
# Where payloads and results come in; nobody has so much to say elsewhere.
_LARGE = re.compile(r"/api/tasks/?|/api/tasks/[^/]+/report/?")


def is_lines(content_type: str) -> bool:
    """Returns whether a body of this type is JSON lines."""
    return content_type.partition(";")[0].strip().lower() in _LINES


class BodyLimit:
    """The middleware that refuses such bodies. Parsing is one long call, and everybody else would wait for it."""

    def __init__(self, app: ASGIApp, streamed: Collection[str] = (), unread: tuple[str, ...] = ()) -> None:
        """``streamed``: addresses that read line by line. ``unread``: beginnings of those that read nothing."""
        self._app = app
        self._streamed = streamed
        self._unread = unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(self._unread) or self._reads_lines(scope):
            await self._app(scope, receive, send)
            return
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        most = LARGEST_BODY_BYTES if _LARGE.fullmatch(scope["path"]) else SMALL_BODY_BYTES
        if told.isdigit() and int(told) > most:
            await self._refuse(f"the body is larger than {most} bytes", scope, receive, send)
            return
        read, begun, parts = 0, False, list[bytes]()

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            parts.append(message.get("body", b""))
            read += len(parts[-1])
            if read > most:
                raise _Refused(f"the body is larger than {most} bytes")
            if not message.get("more_body", False):
                refuse_many_values(parts)
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, limited, noted)
        except _Refused as error:
            if begun:
                raise
            await self._refuse(str(error.detail), scope, receive, send)

    def _reads_lines(self, scope: Scope) -> bool:
        """True for JSON lines to an address that reads them as they come: it holds one at a time."""
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        return scope["path"].rstrip("/") in self._streamed and is_lines(kind.decode("latin-1"))

    async def _refuse(self, why: str, scope: Scope, receive: Receive, send: Send) -> None:
        hint = _AS_LINES if scope["path"].rstrip("/") in self._streamed else _Refused.hint
        answer = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _Refused.code, why, hint)
        await answer(scope, receive, send)


class _Refused(HTTPException):
    """Raised as an HTTP error, so that nobody on the way takes it for a broken body."""

    code = "BODY_TOO_LARGE"
    hint = "store large data elsewhere, and put where it is into the payload"

    def __init__(self, why: str) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


def refuse_many_values(parts: Sequence[bytes]) -> None:
    """Counts lists, objects and values, first roughly, then, where that is too many, without what stands in texts;
    refuses too many."""
    if _count(parts, b"[{") <= MOST_CONTAINERS and _count(parts, b",") <= MOST_VALUES:
        return
    bare = [_TEXT.sub(b"", b"".join(parts))]
    if _count(bare, b"[{") > MOST_CONTAINERS or _count(bare, b",") > MOST_VALUES:
        raise _Refused(f"the body has more than {MOST_CONTAINERS:,} lists and objects, or {MOST_VALUES:,} values")


def _count(parts: Sequence[bytes], marks: bytes) -> int:
    return sum(part.count(mark) for part in parts for mark in marks)
