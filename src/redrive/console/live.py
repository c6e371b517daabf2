"""What open pages are told while they are open: sampled once for all of them, however many there are.

A topic is sampled by one loop as long as somebody listens, once a second at most, for each role: 50 open overviews
cost the store what one does. A listener that is slow, or whose tab was busy, gets the latest state and not the states
in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from secrets import token_hex

from redrive.app import App
from redrive.console.visitors import for_pages
from redrive.errors import InvalidInput, RedriveError, StoreUnavailable, TooManyStreams
from redrive.ops.access import Caller, Role, error_text_for
from redrive.ops.operator import Operator

logger = logging.getLogger("redrive.console")
EVERY_S = 1.0
# A sample that takes long is taken less often: at most a fifth of the time goes into it. One that took long by chance
# (a cold store, a busy machine) keeps nobody waiting: the quicker one of the last two counts.
SHARE = 5
QUIET_S = 5.0  # without news a stream says as of when there are none, also so that proxies keep it
LOOKED_AT_S = 5.0  # how often a stream looks whether its session still holds
MOST_STREAMS = 200
MOST_FEEDS = 100
# Of one person, by their token: who opens more has the page closed that was opened first, and the others keep theirs.
MOST_STREAMS_OF_ONE = 20
MOST_FEEDS_OF_ONE = 40
FeedKey = tuple[str, Role, str | None]
Sample = Callable[[Operator], Awaitable[Mapping[str, str]]]
Sampler = Callable[[str], Sample]  # gets the argument of the topic
Number = Callable[[Operator], Awaitable[int]]


@dataclass(slots=True, frozen=True)
class Trouble:
    """Why a topic cannot be sampled: a word or two for the label of the page, and a sentence."""

    label: str
    text: str


@dataclass(eq=False)
class Feed:
    """One topic for one role, of one connection: the latest state of each of its regions, and how often it changed."""

    topic: str
    role: Role
    connection: str | None = None
    listeners: int = 0
    changes: int = 0
    at: datetime | None = None  # of the last sample, whether it brought something new or not
    regions: dict[str, tuple[int, str]] = field(default_factory=dict)  # with the change that brought it
    trouble: Trouble | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    failure: tuple[tuple[type[Exception], str], Trouble] | None = None  # the last error of our own, and as it was told

    @property
    def key(self) -> FeedKey:
        return self.topic, self.role, self.connection

    def put(self, sample: Mapping[str, str], trouble: Trouble | None = None) -> None:
        """Takes a new state; wakes the listeners if something of it is new."""
        if trouble is None:
            self.at = datetime.now(UTC)
        new = {name: text for name, text in sample.items() if name not in self.regions or self.regions[name][1] != text}
        if not new and trouble == self.trouble:
            return
        self.changes += 1
        self.trouble = trouble
        self.regions.update({name: (self.changes, text) for name, text in new.items()})
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, seen: int) -> dict[str, str]:
        return {name: text for name, (change, text) in self.regions.items() if change > seen}


@dataclass(eq=False)
class Admitted:
    """A stream that was let in: what it listens to, and whose it is."""

    hub: Live
    feeds: list[Feed]
    owner: str
    crowded_out: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False


class Live:
    """All feeds of a process."""

    def __init__(self, app: App, topics: Mapping[str, Sampler]) -> None:
        self._app = app
        self._topics = topics
        self._feeds: dict[FeedKey, Feed] = {}
        self.streams = 0
        self._of: dict[str, list[Admitted]] = {}  # by owner, the first one first
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends all streams: nothing keeps a process that was told to stop."""
        self._closed.set()
        for feed in self._feeds.values():
            if feed.task is not None:
                feed.task.cancel()

    def admit(self, topics: list[str], role: Role, connection: str | None = None, owner: str = "") -> Admitted:
        """Lets a stream in, which counts from now on until it leaves; refuses unknown topics, and one too many.
        ``connection`` None: the default one. ``owner``: whose it is, who makes room for it where they have too many;
        empty: nobody's."""
        for topic in topics:
            sampler(topic, self._topics)
        wanted: set[FeedKey] = {(topic, role, connection) for topic in topics}
        self._make_room(owner, wanted)
        if self.streams >= MOST_STREAMS or len(self._feeds.keys() | wanted) > MOST_FEEDS:
            raise TooManyStreams("too many pages are open", hint="close some; this one works, without being live")
        self.streams += 1
        made = Admitted(self, [self._join(topic, role, connection) for topic in topics], owner)
        if owner:
            self._of.setdefault(owner, []).append(made)
        return made

    def _make_room(self, owner: str, wanted: set[FeedKey]) -> None:
        """Ends the first streams of somebody who has too many: these are the pages that were left open."""
        own = self._of.get(owner, [])
        while own and (
            len(own) >= MOST_STREAMS_OF_ONE
            or len(wanted | {feed.key for stream in own for feed in stream.feeds}) > MOST_FEEDS_OF_ONE
        ):
            first = own[0]
            self.leave(first)
            first.crowded_out.set()

    def leave(self, stream: Admitted) -> None:
        if stream.gone:
            return
        stream.gone = True
        if stream.owner:
            self._of[stream.owner].remove(stream)
            if not self._of[stream.owner]:
                del self._of[stream.owner]
        self.streams -= 1
        for feed in stream.feeds:
            self._leave(feed)

    async def stream(self, admitted: Admitted, holds: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Yields server-sent events until the session no longer holds or the process stops."""
        feeds, crowded_out = admitted.feeds, admitted.crowded_out
        seen = [0] * len(feeds)
        looked = spoke = time.monotonic()
        yield "retry: 2000\n\n"
        while not self._closed.is_set():
            if crowded_out.is_set():
                yield "event: crowded\ndata: {}\n\n"
                return
            for i, feed in enumerate(feeds):
                if feed.changes > seen[i]:
                    told = {"regions": feed.since(seen[i]), "trouble": _trouble(feeds), "at": _as_of(feeds)}
                    seen[i] = feed.changes
                    spoke = time.monotonic()
                    yield f"data: {json.dumps(told, ensure_ascii=True)}\n\n"
            now = time.monotonic()
            if now - looked >= LOOKED_AT_S:
                looked = now
                with contextlib.suppress(StoreUnavailable):  # its feeds say so
                    if not await holds():
                        yield "event: over\ndata: {}\n\n"
                        return
            if now - spoke >= QUIET_S:
                spoke = now
                yield f"event: beat\ndata: {json.dumps({'at': _as_of(feeds)})}\n\n"
            await self._news(self._closed, crowded_out, *(feed.changed for feed in feeds))

    async def _news(self, *events: asyncio.Event) -> None:
        """Waits until one of them is set, or it is time to look at the session."""
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, timeout=LOOKED_AT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _join(self, topic: str, role: Role, connection: str | None) -> Feed:
        feed = self._feeds.get((topic, role, connection))
        if feed is None:
            feed = self._feeds[topic, role, connection] = Feed(topic, role, connection)
            feed.task = asyncio.create_task(self._run(feed, sampler(topic, self._topics)))
        feed.listeners += 1
        return feed

    def _leave(self, feed: Feed) -> None:
        feed.listeners -= 1
        if feed.listeners == 0:
            self._feeds.pop(feed.key, None)
            if feed.task is not None:
                feed.task.cancel()

    def _failed(self, feed: Feed, error: Exception) -> Trouble:
        """Returns the trouble of an error of our own. It is logged once, however often the same comes again."""
        kind = (type(error), str(error))
        if feed.failure is None or feed.failure[0] != kind:
            failure_id = token_hex(4)
            logger.error(
                "a live region could not be made: error %s",
                failure_id,
                exc_info=error,
                extra={"event": "console.live", "topic": feed.topic, "error_id": failure_id},
            )
            text = f"The server failed to make a part of this page; its log says why: error {failure_id}."
            feed.failure = kind, Trouble("not live", text)
        return feed.failure[1]

    async def _run(self, feed: Feed, sample: Sample) -> None:
        caller, before = Caller("console", feed.role), 0.0
        while True:
            begun = time.monotonic()
            try:
                operator = for_pages(self._app, await self._app.operator(caller, feed.connection))
                feed.put(await sample(operator))
            except StoreUnavailable as error:
                feed.put({}, Trouble("store unreachable", error_text_for(error, feed.role)[0]))
            except RedriveError as error:
                feed.put({}, Trouble("not live", error_text_for(error, feed.role)[0]))
            except Exception as error:
                feed.put({}, self._failed(feed, error))
            took = time.monotonic() - begun
            await asyncio.sleep(_pause(took, before))
            before = took


def _pause(took: float, before: float) -> float:
    """Returns how long to wait after a sample that took so long, where the one before it took ``before``."""
    return max(EVERY_S - took, min(took, before) * (SHARE - 1), 0)


def _trouble(feeds: list[Feed]) -> dict[str, str] | None:
    """Returns the trouble of a page: it is live when all that it listens to is."""
    return next((asdict(feed.trouble) for feed in feeds if feed.trouble is not None), None)


def _as_of(feeds: list[Feed]) -> str | None:
    """Returns as of when everything is that a page was told."""
    return min((feed.at.isoformat() for feed in feeds if feed.at is not None), default=None)


def seldom(sample: Sample, every: float) -> Sample:
    """Returns a sample of what changes slowly: in between, for so many seconds, it is the last one again."""
    last: Mapping[str, str] = {}
    due = 0.0

    async def sampled(operator: Operator) -> Mapping[str, str]:
        nonlocal last, due
        if time.monotonic() >= due:
            last = await sample(operator)
            due = time.monotonic() + every
        return last

    return sampled


def sampler(topic: str, topics: Mapping[str, Sampler]) -> Sample:
    """Returns how a topic is sampled; ``operation:ID`` has an argument."""
    name, _, argument = topic.partition(":")
    made = topics.get(name)
    if made is None:
        raise InvalidInput(f"there is no topic {name[:50]!r}")
    return made(argument)
