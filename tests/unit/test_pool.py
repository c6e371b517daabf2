"""Connections in doubt: a wire that does not answer says nothing good about those that lie idle beside it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import asyncpg
import pytest

from redrive.errors import RedriveError
from redrive.stores.postgres.pool import Pool

pytestmark = pytest.mark.anyio


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
