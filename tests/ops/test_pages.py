"""A page costs what it shows: rows come in pieces, documents up to a budget."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import App, Context, Fail
from redrive.kernel.payload import CUT, JsonText
from redrive.observe.logs import TaskLog
from redrive.ops import pages
from redrive.ops.access import Caller, Role
from redrive.ops.operator.executors import within_budget
from redrive.settings import Options


@dataclass
class Row:
    number: int
    payload: Any


async def test_pieces_and_budget() -> None:
    asked: list[tuple[int, int]] = []

    async def fetch(number: int, documents: int, last: Row | None) -> list[Row]:
        asked.append((number, documents))
        start = 0 if last is None else last.number + 1
        document = JsonText("x" * pages.LONGEST_IN_A_LIST) if documents else CUT
        return [Row(n, document) for n in range(start, min(start + number, 330))]

    found = await pages.in_pieces(1000, fetch)
    assert [row.number for row in found] == list(range(330))
    assert max(number for number, _ in asked) == pages.ROWS_PER_PIECE
    carried = sum(len(row.payload) for row in found if row.payload is not CUT)
    assert pages.PAGE_BUDGET_CHARS <= carried < pages.PAGE_BUDGET_CHARS + pages.ROWS_PER_PIECE * pages.LONGEST_IN_A_LIST
    assert asked[-1][1] == 0, "what comes after the budget comes without documents"


@pytest.mark.parametrize(("size", "wanted"), [(10, 500), (2**20, 16), (2**18, 16), (2**13, 500)])
async def test_claims_have_a_budget(size: int, wanted: int) -> None:
    made: list[int] = []

    async def claim(number: int) -> list[Any]:
        made.append(number)
        return [Row(n, "x" * size) for n in range(number)]

    assert len(await within_budget(500, claim)) == wanted
    assert len(made) <= 2


async def test_lists_of_long_tasks_are_complete_and_short(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/pages.db?synchronous=normal")

    @app.task("LONG", max_attempts=1)
    async def fails(ctx: Context, payload: Any) -> None:
        raise Fail("TASK_PRECONDITION_FAILED", "no")

    await app.enqueue_many([("LONG", {"n": n, "text": "x" * 15_000}) for n in range(400)])
    await app.worker(await app.store(), Options(concurrency=50, stop_when_empty=True), log=TaskLog(style="off")).run()
    operator = (await app.operator(Caller("ann", Role.OPERATOR))).for_pages()
    preview = (await operator.failures.preview(page_size=400)).tasks
    listed = (await operator.failures.list(limit=400)).tasks
    letters = await operator.failures.dead_letters(limit=400)
    for found in (preview, listed, letters):
        assert len({one.id for one in found}) == 400
        whole = [one for one in found if one.payload is not CUT]
        assert (
            0
            < sum(len(one.payload) for one in whole)
            < pages.PAGE_BUDGET_CHARS + pages.ROWS_PER_PIECE * pages.LONGEST_IN_A_LIST
        )
        assert len(whole) < 400
    assert [task.failed_seq for task in preview] == sorted(task.failed_seq or 0 for task in preview)
    assert [task.id for task in listed] == [task.id for task in preview[::-1]]
    document = await operator.tasks.document(preview[-1].id, "payload")
    assert document is not None and json.loads(document)["text"] == "x" * 15_000
    await app.close()
