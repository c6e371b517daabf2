"""Random sequences of movements against a model of two numbers for each reference."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive import App
from redrive.errors import RedriveError
from redrive.ops.access import Role
from redrive.settings import load_settings
from tests.effort import tries
from tests.ledger.conftest import ledger_of

AMOUNTS, NAMES, REFERENCES = st.integers(1, 8), st.sampled_from("ab"), st.sampled_from(["r1", "r2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("credit"), NAMES, AMOUNTS),
        st.tuples(st.just("adjust"), NAMES, st.integers(-8, 8).filter(bool)),
        st.tuples(st.just("freeze"), NAMES, REFERENCES, AMOUNTS),
        st.tuples(st.just("settle"), NAMES, REFERENCES, st.integers(0, 8), st.integers(0, 8)),
        st.tuples(st.just("again")),
    ),
    max_size=25,
)


class Model:
    def __init__(self) -> None:
        self.available = dict.fromkeys("ab", 0)
        self.frozen: dict[tuple[str, str], int] = {}

    def take(self, step: tuple[Any, ...]) -> bool:
        """Applies a step; False where it has to be refused."""
        match step:
            case ("credit", name, amount):
                self.available[name] += amount
            case ("adjust", name, change) if self.available[name] + change >= 0:
                self.available[name] += change
            case ("freeze", name, reference, amount) if self.available[name] >= amount:
                self.available[name] -= amount
                self.frozen[name, reference] = self.frozen.get((name, reference), 0) + amount
            case ("settle", name, reference, captured, released) if (
                0 < captured + released <= self.frozen.get((name, reference), 0)
            ):
                self.frozen[name, reference] -= captured + released
                self.available[name] += released
            case _:
                return False
        return True


async def play(app: App, steps: list[tuple[Any, ...]]) -> None:
    model, ledger, last = Model(), app.ledger, None
    for name in "ab":
        await ledger.open(name)
    for n, step in enumerate(steps):
        if step == ("again",):  # what landed, sent once more
            if last is not None:
                await last()
            continue
        call = _call(ledger, step, f"k{n}")
        if model.take(step):
            await call()
            last = call
        else:
            with pytest.raises(RedriveError):
                await call()
    reads = await ledger_of(app, Role.ADMIN)
    for name in "ab":
        held = {reference: n for (owner, reference), n in model.frozen.items() if owner == name and n}
        found = await ledger.balance(name)
        assert found == {"available": model.available[name], "frozen": sum(held.values())}
        assert {one.reference: one.amount for one in (await reads.freezes(name)).items} == held
        lines = (await reads.statement(name, limit=500)).items
        assert not lines or (lines[0].available_after, lines[0].frozen_after) == tuple(found.values())
        assert not lines or lines[-1].available_after == lines[-1].available
    assert (await reads.verify()).problems == []


def _call(ledger: Any, step: tuple[Any, ...], key: str) -> Any:
    match step:
        case ("credit", name, amount):
            return lambda: ledger.credit(name, amount, key, reason="r")
        case ("adjust", name, change):
            return lambda: ledger.adjust(name, change, key, reason="r")
        case ("freeze", name, reference, amount):
            return lambda: ledger.freeze(name, amount, reference, key)
        case (_, name, reference, captured, released):
            return lambda: ledger.settle(name, reference, key, captured=captured, released=released)


def run(url: str, steps: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        app = App(settings=load_settings(url=url, log_format="off"))
        try:
            await app.migrate()
            await play(app, steps)
        finally:
            await app.close()

    asyncio.run(main())


@settings(max_examples=tries(8, 15, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_sqlite(tmp_path: Path, steps: list[tuple[Any, ...]]) -> None:
    run("sqlite:///:memory:", steps)
