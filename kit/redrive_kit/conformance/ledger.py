"""The ledger: adds up at every commit, never negative, each movement once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive.errors import InvalidInput
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Need
from redrive.kernel.ledger import Posting
from redrive.kernel.outcome import Completed
from redrive.kernel.task import State
from redrive_kit.conformance.harness import Harness

WORLD = "system:world"


def grant(key: str, account: str, amount: int) -> Posting:
    return Posting(key, ((WORLD, -amount), (account, amount)))


def charge(key: str, account: str, amount: int) -> Posting:
    return Posting(key, ((account, -amount), ("revenue", amount)))


async def post(harness: Harness, *postings: Posting) -> set[str]:
    return (await harness.store.apply(Commit(postings=postings))).repeated


class TestLedger:
    @pytest.fixture(autouse=True)
    def _capable(self, harness: Harness) -> None:
        harness.needs(Need.LEDGER)

    async def test_a_posting_moves_money(self, harness: Harness) -> None:
        assert await post(harness, grant("g1", "alice", 100)) == set()
        await post(harness, charge("c1", "alice", 30))
        balances = [await harness.store.sql.balance(name) for name in ("alice", "revenue", WORLD, "nobody")]
        assert balances == [70, 30, -100, 0]
        assert sum(balances) == 0

    async def test_an_unbalanced_posting_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="does not add up"):
            Posting("p", (("alice", 5), (WORLD, -4)))
        with pytest.raises(InvalidInput, match="does not add up"):
            Posting("p", ())

    async def test_one_account_in_several_entries(self, harness: Harness) -> None:
        await post(harness, Posting("p", ((WORLD, -10), ("alice", 7), ("alice", 3))))
        assert await harness.store.sql.balance("alice") == 10

    async def test_amounts_are_whole_numbers_and_names_text(self) -> None:
        amounts: list[Any] = [0.5, 5.0, True, 2**62, 10**30, "5", None]
        for amount in amounts:
            with pytest.raises(InvalidInput, match="an amount is a whole number"):
                Posting("p", (("alice", amount), (WORLD, amount)))
        names: list[Any] = ["", None, "a\0b", "x" * 600, 5]
        for name in names:
            for posting in ((name, ((WORLD, -1), ("alice", 1))), ("p", ((WORLD, -1), (name, 1)))):
                with pytest.raises(InvalidInput, match=r"must be text|control characters"):
                    Posting(*posting)

    async def test_only_the_system_owes(self, harness: Harness) -> None:
        for account in ("SYSTEM:world", "System:x", "systemx"):
            with pytest.raises(InvalidInput, match="below zero"):
                await post(harness, Posting("p", ((account, -1), ("alice", 1))))

    async def test_a_key_names_one_movement(self, harness: Harness) -> None:
        await post(harness, grant("g", "alice", 100))
        same = Posting("g", (("alice", 60), ("alice", 40), (WORLD, -100)))
        assert await post(harness, same) == {"g"}
        for other in (grant("g", "alice", 1), grant("g", "bob", 100)):
            with pytest.raises(InvalidInput, match="was posted before, with other entries"):
                await post(harness, other)
        assert [await harness.store.sql.balance(name) for name in ("alice", "bob")] == [100, 0]

    async def test_a_repeated_key_is_applied_once(self, harness: Harness) -> None:
        await post(harness, grant("g1", "alice", 100))
        assert await post(harness, grant("g1", "alice", 100)) == {"g1"}
        assert await post(harness, grant("g2", "alice", 1), grant("g2", "alice", 1)) == {"g2"}
        assert await harness.store.sql.balance("alice") == 101

    async def test_a_repeated_key_is_applied_once_under_concurrency(self, harness: Harness) -> None:
        other = await harness.another()
        answers = await asyncio.gather(
            *(store.apply(Commit(postings=[grant("g1", "alice", 10)])) for store in (harness.store, other) * 10)
        )
        assert sorted(len(answer.repeated) for answer in answers) == [0] + [1] * 19
        assert await harness.store.sql.balance("alice") == 10

    async def test_an_overdraft_rolls_the_whole_commit_back(self, harness: Harness) -> None:
        await post(harness, grant("g1", "alice", 10))
        claimed = await harness.running()
        commit = Commit(
            enqueues=[harness.new("WEBHOOK")],
            transitions=[harness.decide(claimed, Completed())],
            postings=[charge("c1", "alice", 4), charge("c2", "alice", 7)],
            audits=[Audit("ann", "SETTLE")],
        )
        with pytest.raises(InvalidInput, match="account 'alice' would go below zero") as refused:
            await harness.store.apply(commit)
        assert "system:" in (refused.value.hint or "")
        assert await harness.store.sql.balance("alice") == 10 and await harness.store.sql.balance("revenue") == 0
        assert await harness.totals() == {("default", "A", State.RUNNING): 1}
        assert await harness.audit() == []
        assert await post(harness, charge("c1", "alice", 4)) == set()
        assert await harness.settle(claimed, Completed())

    async def test_concurrent_charges_never_overdraw(self, harness: Harness) -> None:
        other = await harness.another()
        await post(harness, grant("g", "alice", 100))
        answers = await asyncio.gather(
            *(
                store.apply(Commit(postings=[charge(f"c{n}", "alice", 10)]))
                for n, store in enumerate([harness.store, other] * 10)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, InvalidInput) for answer in answers) == 10
        assert [await harness.store.sql.balance(a) for a in ("alice", "revenue", WORLD)] == [0, 100, -100]

    async def test_crossing_transfers_do_not_deadlock(self, harness: Harness) -> None:
        other = await harness.another()
        await post(harness, grant("g1", "alice", 1000), grant("g2", "bob", 1000))

        async def move(n: int) -> None:
            here, there = ("alice", "bob") if n % 2 else ("bob", "alice")
            posting = Posting(f"t{n}", ((here, -1), (there, 1)))
            await (harness.store if n % 3 else other).apply(Commit(postings=[posting]))

        await asyncio.gather(*(move(n) for n in range(40)))
        assert await harness.store.sql.balance("alice") + await harness.store.sql.balance("bob") == 2000

    async def test_several_postings_in_any_order_do_not_deadlock(self, harness: Harness) -> None:
        other = await harness.another()
        await post(harness, grant("g1", "alice", 1000), grant("g2", "bob", 1000))

        async def move(n: int) -> None:
            postings = [charge(f"a{n}", "alice", 1), Posting(f"b{n}", (("bob", -1), ("costs", 1)))]
            await (harness.store if n % 3 else other).apply(Commit(postings=postings if n % 2 else postings[::-1]))

        await asyncio.gather(*(move(n) for n in range(40)))
        assert [await harness.store.sql.balance(a) for a in ("alice", "bob", "revenue", "costs")] == [960, 960, 40, 40]

    async def test_postings_are_made_in_their_order(self, harness: Harness) -> None:
        """What the first brings, the second may spend; not the other way round."""
        with pytest.raises(InvalidInput, match="below zero"):
            await post(harness, charge("c", "alice", 5), grant("g", "alice", 5))
        assert await post(harness, grant("g", "alice", 5), charge("c", "alice", 5)) == set()
        assert [await harness.store.sql.balance(a) for a in ("alice", "revenue")] == [0, 5]
