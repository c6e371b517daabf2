"""Transactional completion: the handler's writes and the task's end in one commit, fenced."""

from __future__ import annotations

from contextlib import suppress

import pytest

from redrive.errors import LeaseLost
from redrive.kernel.outcome import Completed, Outcome, Snooze
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, TERMINAL, Harness


class TestTransaction:
    @pytest.fixture(autouse=True)
    async def _own_table(self, harness: Harness) -> None:
        await harness.sql("create table shot (n integer)")

    async def write(self, harness: Harness, claimed: Claimed, outcome: Outcome) -> None:
        async with harness.store.sql.transaction(lambda: harness.decide(claimed, outcome)) as connection:
            await connection.execute("insert into shot values (7)")
            rows = await connection.fetch("select n from shot")
            assert [tuple(row) for row in rows] == [(7,)]

    async def test_writes_and_completion_land_together(self, harness: Harness) -> None:
        claimed = await harness.running()
        await self.write(harness, claimed, Completed('{"n":7}'))
        assert await harness.sql("select n from shot") == [(7,)]
        task = await harness.task(claimed.id)
        assert (task.state, task.result) == (State.COMPLETED, {"n": 7})
        assert not await harness.settle(claimed, Completed())
        await harness.check_totals()

    @pytest.mark.parametrize("outcome, state", [(Snooze(30), State.DELAYED), (TERMINAL, State.FAILED)])
    async def test_any_outcome_can_end_a_transaction(self, harness: Harness, outcome: Outcome, state: State) -> None:
        claimed = await harness.running()
        await self.write(harness, claimed, outcome)
        assert await harness.sql("select n from shot") == [(7,)]
        assert await harness.state(claimed.id) is state

    async def test_an_exception_rolls_both_back(self, harness: Harness) -> None:
        claimed = await harness.running()
        with pytest.raises(ZeroDivisionError):
            async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as connection:
                await connection.execute("insert into shot values (7)")
                raise ZeroDivisionError
        assert await harness.sql("select n from shot") == []
        assert await harness.state(claimed.id) is State.RUNNING
        assert await harness.settle(claimed, Completed())
        await harness.check_totals()

    async def test_a_lost_lease_rolls_the_writes_back(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE + 1)
        await harness.recover()
        second = await harness.claim_one(worker="w2")
        with pytest.raises(LeaseLost):
            await self.write(harness, claimed, Completed())
        assert await harness.sql("select n from shot") == []
        assert (await harness.task(claimed.id)).lease_token == second.token
        await harness.check_totals()

    async def test_the_settlement_is_decided_at_the_end(self, harness: Harness) -> None:
        """The handler's result is known only after its last write."""
        claimed = await harness.running()
        result: list[str] = []
        async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed(result[0]))) as connection:
            await connection.execute("insert into shot values (1)")
            result.append('"late"')
        assert (await harness.task(claimed.id)).result == "late"

    async def test_the_store_works_on_after_a_failed_transaction(self, harness: Harness) -> None:
        claimed = await harness.running()
        with pytest.raises(Exception):  # noqa: B017 - whatever the driver says about bad SQL
            async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as connection:
                await connection.execute("insert into no_such_table values (7)")
        assert await harness.state(claimed.id) is State.RUNNING
        assert await harness.settle(claimed, Completed())

    @pytest.mark.parametrize("ends", ["completed", "rolled back"])
    async def test_temporary_tables_end_with_the_block(self, harness: Harness, ends: str) -> None:
        """The next handler on the same connection finds neither the table nor its rows."""
        for _ in range(3):
            claimed = await harness.running()
            with suppress(ZeroDivisionError):
                async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as connection:  # noqa: B023
                    await connection.execute("create temp table batch (secret text)")
                    await connection.execute("insert into batch values ('mine')")
                    if ends != "completed":
                        raise ZeroDivisionError
            assert (await harness.state(claimed.id) is State.COMPLETED) == (ends == "completed")
