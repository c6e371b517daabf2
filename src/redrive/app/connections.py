"""The stores of an application by their names, and which of them a task goes to or is in."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.errors import ConnectionUnknown, InvalidInput, StoreUnavailable, WrongSetting
from redrive.handlers.routing import Routing
from redrive.kernel.commit import Commit
from redrive.kernel.ports.reads import get_task
from redrive.settings import Settings
from redrive.stores import is_sqlite
from redrive.stores.django_tests import refuse_in_tests, remember_names
from redrive.stores.loops import StoreHolder

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store

ANSWER_S = 3.0  # one that hangs keeps nobody from a task that another has
# One connection of an application, for those who may not know stores: they pass it on.
Served = StoreHolder


class Connections(Mapping[str, StoreHolder]):
    """The connections of an application, the default one (``main``) first."""

    def __init__(self, settings: Settings, url: str, features: Sequence[Feature]) -> None:
        remember_names()
        urls = {settings.default_connection: url, **settings.other_urls}
        self._features = features
        self._asked: set[asyncio.Task[str | StoreUnavailable | None]] = set()
        self._configured = settings.connections
        self._holders = {name: StoreHolder(name, where, features, refuse_in_tests) for name, where in urls.items()}
        self.main = self._holders[settings.default_connection]
        self.routing = Routing(self.main.name, settings.routes) if settings.routes else None
        # Asked for each task that is enqueued: None where all go to the default connection.
        self.routed = self.routing if any(one.connection for one in settings.routes.values()) else None

    def __getitem__(self, name: str) -> StoreHolder:
        return self._holders[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._holders)

    def __len__(self) -> int:
        return len(self._holders)

    def check(self, source: str) -> None:
        """Refuses a URL that cannot work here, where it was written. ``source``: what it is called, for the default."""
        for name, holder in self.items():
            try:
                holder.make()
            except WrongSetting as error:
                told = f"connections.{name}" if name in self._configured else source
                error.message = f"{told}: {error.message}" if told else error.message
                raise

    def at(self, name: str | None) -> StoreHolder:
        """Returns a connection by its name, the default one for None; refused where there is none of that name."""
        if name is None:
            return self.main
        if not isinstance(name, str):
            raise TypeError(f"a connection is named by a str, not {name!r}; there are: {', '.join(self)}")
        found = self._holders.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self, 1)
            known = f"there are: {', '.join(self)}"
            raise ConnectionUnknown(
                f"there is no connection {name!r}", hint=f"did you mean {close[0]}? {known}" if close else known
            )
        return found

    def of_kind(self, kind: str) -> str:
        """Returns the name of the connection that tasks of a kind go to."""
        return self.main.name if self.routed is None else self.routed.connection_of(kind)

    def for_kinds(self, kinds: Iterable[str], on: str | None, connection: Any) -> StoreHolder:
        """Returns where tasks of these kinds go. One that cannot be part of the caller's transaction is refused."""
        if on is not None:
            name = self.at(on).name
        else:
            name = self.main.name if self.routed is None else self.routed.only(kinds)
        if connection is not None:
            from redrive.integrations.same_store import insist_on_same

            said, sqlite = on is not None, is_sqlite(self[name].url)
            known = self._known_as if len(self) > 1 else lambda _: None
            insist_on_same(connection, name, explicit=said, default=self.main.name, sqlite=sqlite, known_as=known)
        return self[name]

    def _known_as(self, transaction: Any) -> str | None:
        """Returns the connection that a transaction of PostgreSQL is on, where its driver says that it is one."""
        from redrive.integrations.same_store import database_of
        from redrive.stores.postgres.url import parse

        found = database_of(transaction)
        if found is None:
            return None
        return next(
            (name for name, one in self.items() if not is_sqlite(one.url) and parse(one.url).place == found), None
        )

    def for_commit(self, commit: Commit, on: str | None, connection: Any) -> StoreHolder:
        """Returns where a Commit lands: with its tasks, which have to agree, or ``on``."""
        kinds = [task.kind for task in commit.new_tasks]
        where = self.for_kinds(kinds, on, connection)
        if on is None and where is not self.main and not commit.only_new_tasks:
            raise InvalidInput(
                f"{kinds[0]} goes to the connection {where.name}, and the rest of this Commit to {self.main.name}",
                hint="apply them one after the other, or say on=… for all of it",
            )
        return where

    async def store_with(self, task_id: UUID) -> Store:
        """Returns the store that has a task; the default one where none has, or there is no other."""
        if len(self) == 1:
            return await self.main.store()
        return await self[await self.with_task(task_id) or self.main.name].store()

    async def with_task(self, task_id: UUID) -> str | None:
        """Returns the name of the connection that has a task; all are asked at the same time. One that is away, or says
        nothing for a while, is passed over; where none of the others has it, that is the answer."""
        away: StoreUnavailable | None = None
        asked = [asyncio.create_task(_has_task(name, holder, task_id)) for name, holder in self.items()]
        self._asked.update(asked)
        for one in asked:
            # Those that are asked in vain answer soon, too: a query that is broken off would cost a connection.
            one.add_done_callback(self._asked.discard)
        for answer in asyncio.as_completed(asked):
            found = await answer
            if isinstance(found, str):
                return found
            away = away or found
        if away is not None:
            raise away
        return None

    @contextmanager
    def all_at(self, url: str) -> Iterator[None]:
        """Has all of them be one store meanwhile: what goes to any of them is there."""
        kept = self._holders, self.main
        self.main = StoreHolder(self.main.name, url, self._features)
        self._holders = dict.fromkeys(self, self.main)
        try:
            yield
        finally:
            self._holders, self.main = kept

    async def close(self) -> None:
        for holder in self.values():
            await holder.close()


async def _has_task(name: str, holder: StoreHolder, task_id: UUID) -> str | StoreUnavailable | None:
    """Returns the connection's name if it has the task, else None, or why it could not be asked."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return name if await get_task(await holder.store(), task_id) is not None else None
    except TimeoutError:
        return StoreUnavailable(f"{name}: no answer within {ANSWER_S:g} s")
    except StoreUnavailable as error:
        error.message = f"{name}: {error.message}"
        return error
