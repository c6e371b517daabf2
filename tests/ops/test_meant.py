"""Tasks by the beginnings of their ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from redrive.errors import InvalidInput, TaskNotFound
from redrive.ops import inspect, search
from redrive.ops.search import Match
from redrive_kit.conformance.harness import Harness
from tests.ops.making import run

ONE, TWO, OTHER = (UUID(f"0197f0c2-8d1e-7c3a-9b1f-{end}") for end in ("2f6f0c9d1a2b", "2f6f0c9d1a2c", "ffffffffffff"))


async def test_a_task_is_meant_by_as_much_as_names_it_alone(harness: Harness) -> None:
    for task_id in (ONE, TWO, OTHER):
        await harness.enqueue(id=task_id)
    assert await inspect.resolve_ids(harness.store, [str(ONE), "0197F0C2-8d1e-7c3a-9b1f-f", str(ONE)]) == [ONE, OTHER]
    assert await inspect.resolve_ids(harness.store, [str(TWO)[:-1] + "c"]) == [TWO]
    with pytest.raises(InvalidInput, match="several tasks begin with 0197f0c2") as several:
        await inspect.resolve_ids(harness.store, ["0197f0c2"])
    assert str(TWO) in str(several.value.hint)
    with pytest.raises(TaskNotFound, match="no task whose id begins with 0197f0c3"):
        await inspect.resolve_ids(harness.store, ["0197f0c3"])
    with pytest.raises(InvalidInput, match="is too little of an id"):
        await inspect.resolve_ids(harness.store, ["0197f0c"])
    for nonsense in ("0197f0c2-zzzz", "", "all"):
        with pytest.raises(InvalidInput, match="is not a task id"):
            await inspect.resolve_ids(harness.store, [nonsense])
    await run(harness)
    assert await inspect.resolve_ids(harness.store, ["0197f0c2-8d1e-7c3a-9b1f-ff"]) == [OTHER], "also a finished one"
    assert await search.find(harness.store, "0197f0c2-8d1e-7c3a-9b1f-ff") == [Match("task", str(OTHER))]
    both = [Match("task", str(one)) for one in (TWO, ONE)]
    assert await search.find(harness.store, "0197F0C2-8d1e-7c3a-9b1f-2") == both, "several are listed, the latest first"
    assert [one.value for one in await search.find(harness.store, "0197f0")] == [str(OTHER), str(TWO), str(ONE)]
    assert await search.find(harness.store, "0197f") == [], "what is so short is a word"
