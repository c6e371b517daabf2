"""A random run of creates, updates and deletes, delivered late, twice and in any order to a sink that fails at random:
in the end the sink has what the source has, document by document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive import State
from redrive.outbox.event import Event
from redrive.outbox.sink import TooLarge
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.verdict import Retry, Verdict
from tests.effort import tries
from tests.outbox.conftest import World, make_app
from tests.outbox.faulty import Faulty
from tests.outbox.forgetful import ForgetfulFts5

FAULTS = ("none", "none", "connect", "timeout", "answer lost", "partly", "partly lost", "too large")
Change = tuple[int, str, int, Any]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[list[Change]], list[str], dict[str, tuple[int, Any]]]:
    """Draws deliveries in pieces, faults of requests, and what the source has in the end."""
    changes: list[Change] = []
    source: dict[str, tuple[int, Any]] = {}
    for version, entity in enumerate(draw(st.lists(st.integers(0, 4), min_size=1, max_size=25)), 1):
        delete = draw(st.booleans()) and draw(st.booleans())
        document = None if delete else {"v": version, "text": f"words {version}"}
        changes.append((entity, "delete" if delete else "upsert", version, document))
        source[f"note:{entity}"] = (version, document)
    again = draw(st.lists(st.sampled_from(changes), max_size=6))
    delivered = draw(st.permutations([*changes, *again]))
    size = draw(st.integers(1, len(delivered)))
    faults = draw(st.lists(st.sampled_from(FAULTS), max_size=10))
    return [delivered[at : at + size] for at in range(0, len(delivered), size)], faults, source


def fault_of(name: str, fts: Fts5, sink: Faulty) -> Any:
    """Returns what a request meets by the name of a fault."""
    if name == "connect":
        return ConnectionRefusedError("down")
    if name == "timeout":
        return TimeoutError("slow")

    def partly(events: Sequence[Event]) -> dict[int, Verdict]:
        return {at: Retry("http_429", "busy") for at in range(0, len(events), 2)}

    def too_large(events: Sequence[Event]) -> dict[int, Verdict]:
        if len(events) > 1:
            raise TooLarge("413")
        return {}

    sink.lost.append(name in ("answer lost", "partly lost"))
    return {"partly": partly, "partly lost": partly, "too large": too_large}.get(name, lambda events: {})


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("url", "kind"), [("sqlite", Fts5), ("postgres", ForgetfulFts5)], indirect=["url"])
def test_the_sink_ends_equal_to_the_source(url: str, tmp_path: Path, kind: type[Fts5]) -> None:
    asyncio.run(make_app(url).migrate())
    number = iter(range(1_000_000))

    @settings(
        max_examples=tries(3, 8, 60),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        database=None,
    )
    @given(runs())
    def check(drawn: Any) -> None:
        asyncio.run(one_run(url, kind(tmp_path / f"search{next(number)}.db"), *drawn))

    check()


async def one_run(
    url: str, fts: Fts5, pieces: list[list[Change]], faults: list[str], source: dict[str, tuple[int, Any]]
) -> None:
    app, sink = make_app(url, max_attempts=100), Faulty(fts)
    # A name of its own: tombstones of earlier runs are not its.
    name = Path(fts._file._path).stem
    app.outbox.projection(name, sink=sink)
    sink.faults = [fault_of(one, fts, sink) for one in faults]
    world = World(app, fts, sink, name)
    for piece in pieces:
        await app.outbox.publish_many(None, name, [("note", *change) for change in piece])
        await app.worker(stop_when_empty=True).run()
    await world.drain()
    alive = {key: (version, document) for key, (version, document) in source.items() if document is not None}
    assert await world.versions() == {key: version for key, (version, _) in alive.items()}
    for key, (_, document) in alive.items():
        assert await fts.get(key) == document
        assert key in {hit.key for hit in await fts.search(document["text"], 100)}
    assert {task.state for task in await world.tasks()} == {State.COMPLETED}
    await app.close()
    await fts.close()
