"""Circuits for operators: listed, told of everywhere, opened, closed and probed by hand, with an audit row."""

from __future__ import annotations

import pytest

from redrive.errors import NotFound
from redrive.kernel.alerts.book import Book
from redrive.kernel.alerts.rules import conditions
from redrive.kernel.alerts.thresholds import Limits
from redrive.kernel.circuit import CircuitState, SetCircuit
from redrive.kernel.commit import Target
from redrive.kernel.diagnosis import Level
from redrive.kernel.outcome import Completed
from redrive.ops.alerts.look import look
from redrive.ops.doctor import examine
from redrive.ops.fleet_metrics import samples_of
from redrive_kit.conformance.harness import Harness
from tests.ops.test_operator import operator

WAIT = 30.0


async def declared(harness: Harness) -> None:
    await harness.control(SetCircuit("pay", 0, ("A", "B"), False))


async def opened(harness: Harness) -> None:
    await harness.control(SetCircuit("pay", 0, ("A", "B"), True, WAIT, "connect: ConnectionError", "w1", 0, 1))


async def test_it_is_opened_probed_and_closed_by_hand(harness: Harness) -> None:
    await declared(harness)
    await harness.enqueue_many(3, "A")
    ann = operator(harness).circuits
    done = await ann.open("pay", "they told us")
    assert done.changed and done.circuit.state is CircuitState.OPEN
    assert "because opened by ann; the next probe in" in done.circuit.told
    assert not (await ann.open("pay")).changed
    assert await harness.claim(9) == []

    assert (await ann.probe("pay")).circuit.state is CircuitState.HALF_OPEN
    (probe,) = await harness.claim(9)
    await harness.settle(probe, Completed())
    done = await ann.close("pay", "they are back")
    assert done.changed and done.circuit.state is CircuitState.CLOSED
    assert len(await harness.claim(9)) == 2
    assert not (await ann.close("pay")).changed
    assert not (await ann.probe("pay")).changed
    rows = [(row.actor, row.action, row.reason, row.target, row.after) for row in await harness.audit()]
    assert rows == [
        ("ann", "CIRCUIT_CLOSE", "they are back", "circuit:pay", {"open": False}),
        ("ann", "CIRCUIT_PROBE", None, "circuit:pay", {"open": True}),
        ("ann", "CIRCUIT_OPEN", "they told us", "circuit:pay", {"open": True}),
    ]


async def test_the_words_of_an_operator_are_in_the_audit_log_alone(harness: Harness) -> None:
    await declared(harness)
    done = await operator(harness).circuits.open("pay", "customer bob complained")
    assert done.circuit.reason == "opened by ann"


async def test_one_that_nobody_knows_is_refused(harness: Harness) -> None:
    await declared(harness)
    with pytest.raises(NotFound) as refused:
        await operator(harness).circuits.open("pya")
    assert refused.value.hint == "circuits: pay"


async def test_it_is_listed_with_what_waits(harness: Harness) -> None:
    await opened(harness)
    await harness.control(SetCircuit("aaa", 0, ("C",), False))
    await harness.enqueue_many(2, "A")
    await harness.enqueue("B")
    found = await operator(harness).circuits.list()
    assert [(one.name, one.queued) for one in found] == [("pay", 3), ("aaa", 0)]


async def test_why_says_since_when_because_of_what_and_when_it_is_tried(harness: Harness) -> None:
    await opened(harness)
    task_id = await harness.enqueue("A")
    await harness.beat("w1")
    (reason,) = [one for one in (await operator(harness).tasks.show(task_id)).why if one.code == "circuit"]
    assert reason.text.startswith("circuit pay is open since ")
    assert "because connect: ConnectionError; the next probe in " in reason.text
    assert reason.fix == "redrive circuits probe pay"
    await harness.hold(Target.KIND, "A")
    codes = [one.code for one in (await operator(harness).tasks.show(task_id)).why]
    assert codes[:2] == ["paused", "circuit"], "a pause is another thing, and said first"


async def test_kinds_and_doctor_tell_of_it(harness: Harness) -> None:
    await opened(harness)
    await harness.enqueue_many(2, "A")
    kinds = {one.name: one.circuit for one in (await operator(harness).control.kinds()).items}
    assert kinds["A"] == "pay"
    (found,) = [one for one in await examine(harness.store) if one.code == "circuit_open"]
    assert found.level is Level.NOTE and "2 tasks of A, B waiting" in found.text
    assert [one.code for one in await examine(harness.store, "default") if one.code == "circuit_open"]
    await harness.advance(3600)
    told = {one.code: one for one in await examine(harness.store)}
    assert told["circuit_open"].level is Level.WARNING
    assert "all 2 of kind A, whose circuit pay is open since" in told["held_backlog"].text
    assert "backlog" not in told


async def test_what_waits_behind_it_is_told_by_one_alert(harness: Harness) -> None:
    await opened(harness)
    await harness.enqueue_many(150, "A")
    await harness.claim(9)
    await harness.advance(3600)
    figures = await harness.store.figures()
    assert [(one.name, one.kinds, one.opened) for one in figures.circuits] == [("pay", ("A", "B"), 1)]
    facts, _ = await look(harness.store, Limits(), figures, Book())
    assert {one.rule for one in conditions(facts, Limits())} == {"circuit_open"}
    samples = samples_of(figures)
    assert samples["redrive_fleet_kind_circuit_open"] == {("A",): 1.0, ("B",): 1.0}
    assert samples["redrive_fleet_circuit_opened_total"] == {("pay",): 1.0}
    assert samples["redrive_fleet_circuit_open_seconds"]["pay",] >= 3600
    (found,) = [one for one in await examine(harness.store) if one.code == "circuit_open"]
    assert "circuit pay is open since" in found.text, "doctor names it, once"

    await operator(harness).circuits.close("pay")
    figures = await harness.store.figures()
    assert figures.waiting_kinds == set()
    assert samples_of(figures)["redrive_fleet_circuit_open_seconds"] == {("pay",): 0.0}


async def test_one_that_nothing_waits_for_alerts_nobody(harness: Harness) -> None:
    await opened(harness)
    await harness.advance(3600)
    figures = await harness.store.figures()
    assert figures.outages == {"pay": 0.0}
    facts, _ = await look(harness.store, Limits(), figures, Book())
    assert conditions(facts, Limits()) == []
    (found,) = [one for one in await examine(harness.store) if one.code == "circuit_open"]
    assert found.level is Level.NOTE and found.text.endswith("nothing waits for it")
