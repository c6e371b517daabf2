"""A thread that owns one connection and serves requests that come from any event loop."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sqlite3
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from redrive.errors import StoreUnusable
from redrive.stores.features import Features
from redrive.stores.sqlite.connect import connect, in_transaction, patiently, undo
from redrive.stores.sqlite.errors import breaks_connection, translate
from redrive.stores.sqlite.session import NO_FEATURES, Session, micros
from redrive.stores.sqlite.url import Location

T = TypeVar("T")
FORK_PATIENCE_S = 2.0


@dataclass(slots=True, eq=False)
class Request:
    """Work for the thread, and the future that its caller waits on."""

    work: Callable[[Session], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(slots=True)
class Answer:
    request: Request
    value: Any = None
    error: BaseException | None = None


class ConnectionThread:
    """A thread with its connection: started by the first request, stopped by ``close``; may be started again after
    that."""

    def __init__(
        self, name: str, location: Location, clock: Callable[[], float], features: Features = NO_FEATURES
    ) -> None:
        self.location = location
        self.features = features
        self._name = name
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self.reset()
        _threads.add(self)

    def reset(self) -> None:
        """Starts anew: in a process that was forked, the thread does not exist and the locks may be held by nobody."""
        self._lock = threading.Lock()
        # Held by the thread while it is inside SQLite, or in a transaction that will be over in a moment.
        self._busy = threading.Lock()
        # Locked: nothing new. A bare lock, because waiting on it with a timeout costs half of what a Condition does,
        # and the writer does so all day.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._waiting: deque[Request] = deque()
        self._in_hand: list[Request] = []
        self._thread: threading.Thread | None = None
        self._closing = False

    async def run(self, work: Callable[[Session], T]) -> T:
        """Has ``work`` done by the thread. A caller that is cancelled while it is being done changes nothing."""
        loop = asyncio.get_running_loop()
        request = Request(work, loop, loop.create_future())
        self.submit(request)
        value: T = await request.future
        return value

    def submit(self, request: Request) -> None:
        with self._lock:
            self._waiting.append(request)
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
                self._thread.start()
        self.ring()

    def ring(self) -> None:
        """Wakes the thread from its wait."""
        with suppress(RuntimeError):  # it has been rung already
            self._bell.release()

    async def close(self) -> None:
        """Serves what waits, closes the connection, ends the thread."""
        with self._lock:
            thread = self._thread
            self._closing = True
        self.ring()
        if thread is not None:
            await asyncio.to_thread(thread.join)

    # -- in the thread ---------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._closing

    def _main(self) -> None:
        while True:
            while self._attend():
                with self._busy:
                    try:
                        self._serve()
                    except BaseException as error:  # the thread must not end while others wait for it
                        self._give_up(error)
            with self._busy:
                self._disconnect()
            with self._lock:
                # Who came while the connection was being closed is still served.
                if not self._waiting:
                    self._thread = None
                    return

    def _attend(self) -> bool:
        """Waits for requests; False when there is none and the thread is closing."""
        while not self._waiting:
            if self._closing:
                return False
            self._rest()
        return True

    def _rest(self) -> None:
        self._bell.acquire()

    def _serve(self) -> None:
        """Serves requests one by one, each seeing one snapshot."""
        request = self._take(1)[0]
        try:
            connection = self.connected()
            patiently(lambda: connection.execute("begin"))
            try:
                answer = Answer(request, patiently(lambda: request.work(self.session(connection))))
            finally:
                self.clean(connection)
        except BaseException as error:
            answer = Answer(request, error=self.refuse(error))
        deliver([answer])

    def _give_up(self, error: BaseException) -> None:
        """Answers what was being served when something went wrong that nobody foresaw, and begins with a new
        connection."""
        answers = [Answer(request, error=self.refuse(error)) for request in self._in_hand]
        if not self.location.memory:
            self._disconnect()
        deliver(answers)

    def _take(self, most: int) -> list[Request]:
        with self._lock:
            self._in_hand = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            return self._in_hand

    def session(self, connection: sqlite3.Connection) -> Session:
        return Session(connection, micros(self._clock()), self.features)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Marks a wait in the middle of a request: the process may be forked meanwhile."""
        self._busy.release()
        try:
            yield
        finally:
            self._busy.acquire()

    def nap(self, seconds: float) -> None:
        with self.outside():
            time.sleep(seconds)

    def connected(self) -> sqlite3.Connection:
        if self._connection is None:
            _drop_inherited()
            _refuse_torn(self.location)
            self._connection = connect(self.location)
        return self._connection

    def refuse(self, error: BaseException, *, as_it_is: bool = False) -> BaseException:
        """Returns the error as the caller hears it. A connection that is in doubt is not used again."""
        if breaks_connection(error) and not self.location.memory:
            self._disconnect()
        if as_it_is and not isinstance(error, StopIteration):  # which no future carries
            return error
        return translate(error, self.location.where)

    def clean(self, connection: sqlite3.Connection) -> None:
        """Leaves no transaction open for the next request: what cannot be rolled back goes with its connection."""
        undo(connection)
        if in_transaction(connection) and not self.location.memory:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except (
                sqlite3.Error,
                MemoryError,
            ):  # it is being thrown away because it is broken, or recovery does the rest
                return

    # -- around a fork ---------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Keeps the thread out of SQLite until ``let_go``; False when it does not come out in time."""
        return threading.current_thread() is not self._thread and self._busy.acquire(timeout=FORK_PATIENCE_S)

    def let_go(self) -> None:
        self._busy.release()

    def forked(self, *, held: bool) -> None:
        """Leaves the parent's connection to the parent, in the child of a fork."""
        connection, self._connection = self._connection, None
        self.reset()
        if connection is not None and held and not connection.in_transaction:
            _inherited.append(connection)
        elif connection is not None:
            # Never touched again, not even by the interpreter at its end: closing would undo the transaction in the
            # memory that both processes share.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            if not self.location.memory:
                _torn.add(os.path.realpath(self.location.path))


# A fork waits until no thread is inside SQLite: the child would inherit locks that nobody releases. After it the child
# has the parent's connections. While they exist, SQLite believes that this process holds the locks that they had, and
# takes none of its own: the parent would delete the log at its end under the child's feet. So they are closed, except
# those in a transaction (a handler's own): their files are lost to the child.
_threads: weakref.WeakSet[ConnectionThread] = weakref.WeakSet()
_held: list[ConnectionThread] = []
_inherited: list[sqlite3.Connection] = []
_torn: set[str] = set()
_forking = threading.Lock()
_dropping = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    _held[:] = [thread for thread in list(_threads) if thread.hold()]


def _after_in_parent() -> None:
    for thread in _held:
        thread.let_go()
    _held.clear()
    _forking.release()


def _after_in_child() -> None:
    global _forking, _dropping
    _forking, _dropping = threading.Lock(), threading.Lock()
    for thread in list(_threads):
        thread.forked(held=thread in _held)
    _held.clear()


def _drop_inherited() -> None:
    with _dropping:
        while _inherited:
            _inherited.pop().close()


def _refuse_torn(location: Location) -> None:
    if _torn and os.path.realpath(location.path) in _torn:
        raise StoreUnusable(
            f"{location.where} cannot be used by this process, which was forked while a transaction was open on it",
            hint="fork outside of transactions, or start processes with multiprocessing's 'spawn' method",
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def deliver(answers: Sequence[Answer]) -> None:
    """Gives everybody their answer, with one wake-up per event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_loop[answer.request.loop].append(answer)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, theirs)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue


def _resolve(answers: Sequence[Answer]) -> None:
    for answer in answers:
        future = answer.request.future
        if future.done():
            continue
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)
