"""Connections in doubt: a wire that does not answer says nothing good about those that lie idle beside it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import asyncpg
import pytest

from redrive.errors import RedriveError
from redrive.stores.postgres.pool import Pool


class Wire:
    """As much of a connection as the pool looks at."""

    def __init__(self) -> None:
        self.closed = False

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return False

    def lent(self) -> AbstractContextManager[None]:
        return nullcontext()

    def terminate(self) -> None:
        self.closed = True


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> list[Wire]:
    made: list[Wire] = []

    async def connect(*_: Any, **__: Any) -> Wire:
        made.append(Wire())
        return made[-1]

    monkeypatch.setattr(Pool, "_connect", connect)
    return made


async def filled(wires: list[Wire]) -> Pool:
    pool = Pool("postgresql://nowhere/db")
    await asyncio.gather(*(pool.run(lambda _: asyncio.sleep(0.01)) for _ in range(4)))
    assert len(wires) == 4
    return pool


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError()])
async def test_after_trouble_on_the_wire_no_idle_connection_is_trusted(wires: list[Wire], error: Exception) -> None:
    pool = await filled(wires)

    async def breaks(_: Any) -> None:
        raise error

    with pytest.raises(RedriveError):
        await pool.run(breaks)
    assert all(wire.closed for wire in wires)
    await pool.run(lambda _: asyncio.sleep(0))
    assert len(wires) == 5


@pytest.mark.parametrize("error", [asyncpg.UniqueViolationError("taken"), asyncpg.AdminShutdownError("one backend")])
async def test_what_concerns_one_connection_costs_one_at_most(wires: list[Wire], error: Exception) -> None:
    pool = await filled(wires)

    async def breaks(_: Any) -> None:
        raise error

    with pytest.raises(RedriveError):
        await pool.run(breaks)
    assert sum(wire.closed for wire in wires) <= 1


async def test_a_handlers_own_trouble_says_nothing_about_the_wire(wires: list[Wire]) -> None:
    pool = await filled(wires)
    with pytest.raises(RedriveError):
        async with pool.connection(lent=True):
            raise FileNotFoundError("the handler's own")
    assert sum(wire.closed for wire in wires) == 1


async def test_one_connection_that_is_made_serves_all_who_want_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage the claims, the ticks and the duties of a process all want one at the same moment."""
    made: list[Wire] = []

    async def connect(*_: Any, **__: Any) -> Wire:
        await asyncio.sleep(0.02)
        made.append(Wire())
        return made[-1]

    monkeypatch.setattr(Pool, "_connect", connect)
    pool = Pool("postgresql://nowhere/db")
    await asyncio.gather(*(pool.run(lambda _: asyncio.sleep(0)) for _ in range(5)))
    assert len(made) == 1


async def test_a_connection_that_is_not_coming_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.stores.postgres.pool.PATIENCE_S", 0.05)
    hangs = asyncio.Event()
    made: list[Wire] = []

    async def connect(*_: Any, **__: Any) -> Wire:
        if not made:
            made.append(Wire())
            await hangs.wait()
        return Wire()

    monkeypatch.setattr(Pool, "_connect", connect)
    pool = Pool("postgresql://nowhere/db")
    first = asyncio.create_task(pool.run(lambda _: asyncio.sleep(0)))
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*(pool.run(lambda _: asyncio.sleep(0)) for _ in range(4))), 30)
    hangs.set()
    await first


async def test_a_connection_that_is_refused_lets_the_next_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    async def connect(*_: Any, **__: Any) -> Wire:
        nonlocal tried
        tried += 1
        await asyncio.sleep(0.01)
        if tried == 1:
            raise ConnectionRefusedError
        return Wire()

    monkeypatch.setattr(Pool, "_connect", connect)
    pool = Pool("postgresql://nowhere/db")
    answers = await asyncio.gather(*(pool.run(lambda _: asyncio.sleep(0)) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers].count(type(None)) == 2
    assert tried == 2
