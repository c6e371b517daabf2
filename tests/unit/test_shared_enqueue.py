"""Callers that share a statement: nobody waits for somebody else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redrive.errors import InvalidInput, StoreUnavailable
from redrive.ids import new_id
from redrive.kernel.task import Enqueued, NewTask
from redrive.stores.postgres.enqueue import SharedEnqueue


class Server:
    """Answers when it is let; notes what was sent together."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.shared = SharedEnqueue(self._send)

    async def _send(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        self.sent.append(len(tasks))
        await self.gate.wait()
        if self.error is not None and any(task.kind == "BAD" for task in tasks):
            raise self.error
        return [Enqueued(task.id) for task in tasks]

    def caller(self, kind: str = "K") -> asyncio.Task[list[Enqueued]]:
        return asyncio.create_task(self.shared.enqueue([NewTask(new_id(), kind, "default", None)]))


async def test_the_first_goes_alone_and_the_others_together() -> None:
    server = Server()
    callers = [server.caller() for _ in range(50)]
    await asyncio.sleep(0.01)
    assert server.sent == [1, 49]
    late = [server.caller() for _ in range(10)]
    await asyncio.sleep(0.01)
    assert server.sent == [1, 49]  # two are under way; these wait for one of them
    server.gate.set()
    answers = await asyncio.gather(*callers, *late)
    assert server.sent == [1, 49, 10]
    assert len({answer.id for [answer] in answers}) == 60


async def test_a_lone_caller_that_gives_up_lets_the_next_through() -> None:
    server = Server()
    lone = server.caller()
    await asyncio.sleep(0.01)
    waiting = [server.caller() for _ in range(3)]
    await asyncio.sleep(0.01)
    lone.cancel()
    await asyncio.gather(lone, return_exceptions=True)
    server.gate.set()
    assert len(await asyncio.gather(*waiting)) == 3
    assert len(await server.caller()) == 1


async def test_a_caller_in_a_crowd_that_gives_up_changes_nothing_for_the_others() -> None:
    server = Server()
    callers = [server.caller() for _ in range(5)]
    await asyncio.sleep(0.01)
    callers[2].cancel()
    server.gate.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [False, False, True, False, False]


async def test_bad_data_is_its_owners_trouble_only() -> None:
    server = Server()
    server.error = InvalidInput("bad")
    callers = [server.caller("BAD" if n == 3 else "K") for n in range(6)]
    server.gate.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [isinstance(answer, InvalidInput) for answer in answers] == [False, False, False, True, False, False]


async def test_no_store_is_everybodys_trouble_once() -> None:
    server = Server()
    server.error = StoreUnavailable("down")
    callers = [server.caller("BAD") for _ in range(6)]
    await asyncio.sleep(0.01)
    server.gate.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers) and server.sent == [1, 5]
    server.error = None
    assert len(await server.caller()) == 1


async def test_whoever_cancels_what_he_finds_leaves_nobody_waiting() -> None:
    server = Server()
    callers = [server.caller() for _ in range(4)]
    await asyncio.sleep(0.01)
    for task in asyncio.all_tasks():
        if task.get_name() == "redrive-enqueue":
            task.cancel()
    server.gate.set()
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [False, True, True, True]
