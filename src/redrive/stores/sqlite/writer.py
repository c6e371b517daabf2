"""The writing thread: everybody who asks at the same time shares one transaction and one sync to disk."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from redrive.kernel.task import Enqueued, NewTask
from redrive.stores.features import Features
from redrive.stores.sqlite.changes import POLL_WITHOUT_HINTS_EVERY_S, ChangePoller
from redrive.stores.sqlite.connect import patiently, undo
from redrive.stores.sqlite.connection_thread import Answer, ConnectionThread, Request, deliver
from redrive.stores.sqlite.enqueue import enqueue
from redrive.stores.sqlite.errors import breaks_connection
from redrive.stores.sqlite.listen import Listeners
from redrive.stores.sqlite.session import NO_FEATURES, PendingWakes, Session, Tally, micros
from redrive.stores.sqlite.steady import SinceBoot, SteadyClock, follow
from redrive.stores.sqlite.transaction import Exclusive, refuse_inside
from redrive.stores.sqlite.url import Location

# What a handler leaves on the connection that it was lent: it ends with the block, as its transaction does.

_TEMPORARY = r"""select type, name from temp.sqlite_master
where type in ('table', 'view', 'trigger') and name not like 'sqlite\_%' escape '\'"""
_OWN = ("main", "temp")


def left_behind(connection: sqlite3.Connection) -> list[str]:
    """Returns the statements that remove what outlived the transaction: temporary objects and attached files."""
    cursor = connection.cursor()
    cursor.row_factory = None
    objects = [f"drop {kind} if exists temp.{_quoted(name)}" for kind, name in cursor.execute(_TEMPORARY)]
    attached = [name for _, name, _ in cursor.execute("pragma database_list") if name not in _OWN]
    return [*objects, *(f"detach {_quoted(name)}" for name in attached)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Makes one request of enqueues that wait together: a lone task costs a statement, a hundred of them hardly more.

MAX_TASKS_PER_REQUEST = 1000


@dataclass(slots=True, eq=False)
class Enqueue(Request):
    """A request that only enqueues."""

    tasks: Sequence[NewTask] = ()


def enqueues_together(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yields the requests in order, with neighbouring enqueues together."""
    together: list[Request] = []
    size = 0
    for request in requests:
        count = len(request.tasks) if isinstance(request, Enqueue) else MAX_TASKS_PER_REQUEST
        if together and size + count > MAX_TASKS_PER_REQUEST:
            yield together
            together, size = [], 0
        together.append(request)
        size += count
    if together:
        yield together


def merged(together: Sequence[Request]) -> Request:
    """Returns one request for all of these; ``split`` gives each its answer."""
    tasks = [task for request in together if isinstance(request, Enqueue) for task in request.tasks]
    return Request(partial(enqueue, tasks=tasks), together[0].loop, together[0].future)


def split(together: Sequence[Request], answer: Answer) -> list[Answer]:
    """Returns the answer of each request from the answer to all."""
    answers, start = [], 0
    for request in together:
        end = start + (len(request.tasks) if isinstance(request, Enqueue) else 0)
        answers.append(Answer(request, answer.value[start:end]))
        start = end
    return answers


MOST_REQUESTS_PER_COMMIT = 1000
_HAS_CLOCK = "select 1 from sqlite_master where name = 'redrive_clock'"  # not before the file is migrated
T = TypeVar("T")


class Writer(ConnectionThread):
    def __init__(
        self,
        location: Location,
        clock: Callable[[], float],
        listeners: Listeners,
        features: Features = NO_FEATURES,
        since_boot: SinceBoot = lambda: None,
    ) -> None:
        self._listeners = listeners
        self._steady = SteadyClock(clock, since_boot)
        self._change_poller = ChangePoller(location.path)
        self.exclusive: Exclusive | None = None
        super().__init__("redrive-sqlite-write", location, clock, features)

    def reset(self) -> None:
        super().reset()
        self._listeners.reset()
        self._change_poller.reset()
        if self.exclusive is not None:
            self.exclusive.over = True
        self.exclusive = None
        self._seen_version: int | None = None
        self._looked_at = 0.0

    async def run(self, work: Callable[[Session], T]) -> T:
        refuse_inside(self)
        return await super().run(work)

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Like ``run``, but together with others that only enqueue."""
        refuse_inside(self)
        loop = asyncio.get_running_loop()
        request = Enqueue(partial(enqueue, tasks=tasks), loop, loop.create_future(), tasks)
        self.submit(request)
        answers: list[Enqueued] = await request.future
        return answers

    def ring(self) -> None:
        super().ring()
        self._change_poller.ring()

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        if not self._listeners.listening or self._connection is None or self.location.memory:
            super()._rest()
        elif not self._change_poller.wait(self._bell):
            with self._busy:
                self._look()

    def _disconnect(self) -> None:
        super()._disconnect()
        self._change_poller.close()

    def _serve(self) -> None:
        try:
            connection = self.connected()
            patiently(lambda: connection.execute("begin immediate"), self.nap)
            self._follow_clock(connection)
        except BaseException as error:
            deliver([Answer(request, error=self.refuse(error)) for request in self._take(len(self._waiting))])
            return
        # Taken only now: who came while another process held the lock shares this transaction.
        requests = self._take_requests()
        if len(requests) == 1 and isinstance(requests[0], Exclusive):
            self.exclusive = requests[0]
            requests[0].serve(self, connection)
            self.exclusive = None
            self._take_back(connection)
        else:
            self._serve_requests(connection, requests)
            self.clean(connection)
        if time.monotonic() - self._looked_at > POLL_WITHOUT_HINTS_EVERY_S:
            self._look()

    def _follow_clock(self, connection: sqlite3.Connection) -> None:
        """Sees to it that nobody works with times of a clock that was set, in a transaction of its own, before this
        one's requests are taken."""
        found = self._steady.look()
        if found is None or connection.execute(_HAS_CLOCK).fetchone() is None:
            return
        follow(self.session(connection), *found)
        connection.execute("commit")
        self._steady.noted(found)
        patiently(lambda: connection.execute("begin immediate"), self.nap)

    def _take_back(self, connection: sqlite3.Connection) -> None:
        """Leaves nothing of a handler's on the connection that it was lent. One with leftovers is thrown away, whatever
        they are; that of a database in memory is the database, and is swept."""
        self.clean(connection)
        if connection is not self._connection:
            return
        left = left_behind(connection)
        if left and not self.location.memory:
            self._disconnect()
            return
        for statement in left:
            connection.execute(statement)

    def _take_requests(self) -> list[Request]:
        """Requests that can share a transaction: an exclusive one comes alone."""
        with self._lock:
            requests: list[Request] = []
            while self._waiting and len(requests) < MOST_REQUESTS_PER_COMMIT:
                if isinstance(self._waiting[0], Exclusive) and requests:
                    break
                requests.append(self._waiting.popleft())
                if isinstance(requests[-1], Exclusive):
                    break
            self._in_hand = requests
            return requests

    def _serve_requests(self, connection: sqlite3.Connection, requests: list[Request]) -> None:
        tally, wakes = Tally(), PendingWakes()
        answers: list[Answer] = []
        try:
            wanted = [request for request in requests if not request.future.cancelled()]
            for together in enqueues_together(wanted):
                answers += self._serve_together(connection, together, tally, wakes, alone=len(wanted) == 1)
            self.commit(connection, tally)
        except BaseException as error:
            undo(connection)
            answers = [Answer(request, error=self.refuse(error)) for request in requests]
        else:
            self.announce(wakes)
        deliver(answers)

    def _serve_together(
        self, connection: sqlite3.Connection, together: list[Request], tally: Tally, wakes: PendingWakes, *, alone: bool
    ) -> list[Answer]:
        if len(together) > 1:
            answer = self._serve_one(connection, merged(together), tally, wakes, alone=False)
            if answer.error is None:
                return split(together, answer)
        # One by one, also when somebody's data was refused: only its owner should hear of it.
        return [self._serve_one(connection, request, tally, wakes, alone=alone) for request in together]

    def _serve_one(
        self, connection: sqlite3.Connection, request: Request, tally: Tally, wakes: PendingWakes, *, alone: bool
    ) -> Answer:
        """One request in its own savepoint. What it raises is its own, unless SQLite gave up the transaction."""
        session = self.session(connection)
        if not alone:
            connection.execute("savepoint request")
        try:
            value = request.work(session)
        except BaseException as error:
            if not connection.in_transaction or breaks_connection(error):
                raise
            connection.execute("rollback" if alone else "rollback to request")
            if not alone:
                connection.execute("release request")
            return Answer(request, error=self.refuse(error))
        if not alone:
            connection.execute("release request")
        tally.merge(session.tally)
        wakes.merge(session.wakes)
        return Answer(request, value)

    def commit(self, connection: sqlite3.Connection, tally: Tally) -> None:
        if connection.in_transaction:
            tally.flush(connection.execute)
            connection.execute("commit")

    def announce(self, wakes: PendingWakes) -> None:
        pending = wakes.to_send(micros(self._clock()))
        if pending:
            self._listeners.send(pending)

    def _look(self) -> None:
        """``data_version`` of this connection changes when, and only when, another one committed."""
        self._looked_at = time.monotonic()
        if self._connection is None or self.location.memory:
            return
        try:
            (version,) = self._connection.execute("pragma data_version").fetchone()
        except sqlite3.Error:  # only a hint is missed; whoever writes next hears what is wrong
            return
        if self._seen_version not in (None, version):
            self._listeners.send(PendingWakes(anything=True).to_send(0))
            self._change_poller.found()
        self._seen_version = version
