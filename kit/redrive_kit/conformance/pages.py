"""Pages: documents come as text and only up to a length, so that a page costs what it shows, whatever tasks carry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.outcome import Completed
from redrive.kernel.payload import CUT, JsonText
from redrive.kernel.ports.store import MOST_ENTRIES, Query
from redrive.kernel.task import State, Task
from redrive_kit.conformance.harness import Harness
from redrive_kit.conformance.reads import one_of_each

SHORT, LONG = json.dumps({"to": "ünï"}), json.dumps({"text": "x" * 50_000})
DOCUMENTS = ("payload", "progress", "memo", "result")


def read(task: Task) -> Task:
    """A task of a page, with its documents taken apart."""

    def value(name: str) -> Any:
        found = getattr(task, name)
        assert found is None or type(found) is JsonText
        return None if found is None else json.loads(found)

    return replace(task, **{name: value(name) for name in DOCUMENTS})


class TestPages:
    async def test_a_page_holds_what_a_list_holds(self, harness: Harness) -> None:
        await one_of_each(harness)
        whole = await harness.store.find(Query())
        paged = await harness.store.find(Query(documents=1000))
        assert [read(task) for task in paged] == [replace(task, memo=None) for task in whole]
        by_id = await harness.store.get_many([task.id for task in whole], documents=1000)
        assert list(by_id.values()) == paged
        failed = [task for task in paged if task.state is State.FAILED]
        assert await harness.store.failed(FailureFilter(), limit=10, documents=1000) == failed

    async def test_long_documents_are_left_out(self, harness: Harness) -> None:
        await harness.failed(payload=SHORT)
        task_id = await harness.failed(payload=LONG)
        for documents, wanted in ((1000, CUT), (0, CUT), (100_000, None), (2**30, None)):
            [task] = (await harness.store.get_many([task_id], documents=documents)).values()
            found = await harness.store.find(Query(documents=documents))
            [latest, _] = await harness.store.failed(FailureFilter(), limit=5, newest=True, documents=documents)
            [letter, _] = await harness.store.dead_letters(Query(documents=documents))
            timeline = await harness.store.timeline(task_id, documents=documents)
            assert timeline is not None
            shown = [
                task.payload,
                found[0].payload,
                latest.payload,
                letter.payload,
                timeline.task.payload,
                timeline.dead_letters[0].payload,
            ]
            for payload in shown:
                assert payload is wanted if wanted is not None else json.loads(payload) == json.loads(LONG)

    async def test_what_is_not_there_is_not_left_out(self, harness: Harness) -> None:
        task_id = await harness.enqueue(payload=None)
        [task] = (await harness.store.get_many([task_id], documents=0)).values()
        assert (task.payload, task.progress, task.error_message, task.error_stack) == (None, None, None, None)

    async def test_messages_are_left_out_with_the_rest(self, harness: Harness) -> None:
        task_id = await harness.failed()
        [task] = (await harness.store.get_many([task_id], documents=0)).values()
        message: Any = task.error_message
        assert message is CUT
        assert task.error_code == (await harness.task(task_id)).error_code
        assert task.error_summary == (await harness.task(task_id)).error_summary

    async def test_results(self, harness: Harness) -> None:
        done = await harness.running()
        await harness.settle(done, Completed(LONG))
        [task] = (await harness.store.get_many([done.id], documents=1000)).values()
        assert task.result is CUT
        [task] = (await harness.store.get_many([done.id], documents=60_000)).values()
        assert json.loads(task.result) == json.loads(LONG)

    async def test_audit_rows(self, harness: Harness) -> None:
        after = {"hashes": ["x" * 64] * 100}
        await harness.store.apply(Commit(audits=[Audit("ann", "TEST", None, None, None, {"a": 1}, after)]))
        [row] = await harness.store.audit(AuditFilter(), limit=5, documents=1000)
        assert (row.before, row.after) == (JsonText(row.before), CUT) and json.loads(row.before) == {"a": 1}

    async def test_a_timeline_ends_with_the_latest(self, harness: Harness) -> None:
        task_id = await harness.failed()
        rows = [Audit("ann", "TEST", str(n), task_id, None, None, None) for n in range(MOST_ENTRIES + 3)]
        await harness.store.apply(Commit(audits=rows))
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None
        told = [row.reason for row in timeline.audit if row.action == "TEST"]
        assert len(timeline.audit) == MOST_ENTRIES and told == [str(n) for n in range(3, MOST_ENTRIES + 3)]
        assert len(timeline.attempts) == 1
