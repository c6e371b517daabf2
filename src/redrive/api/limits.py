"""A body larger than any task may be is refused before it is read."""

from __future__ import annotations

import re
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.api.problems import problem
from redrive.kernel.task import MAX_PAYLOAD_BYTES

LARGEST = MAX_PAYLOAD_BYTES * 2 + 65_536  # a payload may be written with more characters than it is stored with
SMALL = 262_144
# Where payloads and results come in; nobody has so much to say elsewhere.
_LARGE = re.compile(r"/api/tasks/?|/api/tasks/[^/]+/report/?")


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        most = LARGEST if _LARGE.fullmatch(scope["path"]) else SMALL
        if told.isdigit() and int(told) > most:
            await self._refuse(most, scope, receive, send)
            return
        read, begun = 0, False

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise _TooLarge(most)
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, limited, noted)
        except _TooLarge:
            if begun:
                raise
            await self._refuse(most, scope, receive, send)

    async def _refuse(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        answer = problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "BODY_TOO_LARGE", f"the body is larger than {most} bytes",
            "store large data elsewhere, and put where it is into the payload",
        )  # fmt: skip
        await answer(scope, receive, send)


class _TooLarge(HTTPException):
    """An HTTP error, so that nobody on the way takes it for a broken body."""

    def __init__(self, most: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most} bytes")
