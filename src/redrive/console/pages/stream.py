"""The stream of news for open pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from redrive.console import visitors
from redrive.console.addresses import NAMED
from redrive.console.live import Admitted, Live
from redrive.console.page import Page, ThePage
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput

router = pages_router()
MOST_TOPICS = 5


@router.get("/live")
async def live(page: ThePage) -> Response:
    """Server-sent events about the topics that the address names."""
    topics = [topic for topic in page.query.get("topics", "").split(",") if topic]
    if not 1 <= len(topics) <= MOST_TOPICS:
        raise InvalidInput(f"name 1 to {MOST_TOPICS} topics")
    hub: Live = page.request.app.state.live
    # A person is known by the token, however often they signed in with it; where there are none, by the browser.
    owner = page.visitor.caller.token_id or page.visitor.key
    admitted = hub.admit(topics, page.visitor.caller.role, NAMED.get(), owner)
    return Events(admitted, lambda: still_holds(page))


class Events(StreamingResponse):
    """The answer of a stream that was let in; it leaves when the answer ends, also one that never began."""

    def __init__(self, admitted: Admitted, holds: Callable[[], Awaitable[bool]]) -> None:
        events = admitted.hub.stream(admitted, holds)
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._admitted = admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._admitted.hub.leave(self._admitted)


async def still_holds(page: Page) -> bool:
    """Returns whether whoever opened the page may still look; an open page does not keep a session alive."""
    if not page.visitor.signed_in:
        return await visitors.is_open(page.request)
    caller = await page.request.app.state.redrive.access.signed_in(page.visitor.key, seen=False)
    return caller is not None and caller.role == page.visitor.caller.role
