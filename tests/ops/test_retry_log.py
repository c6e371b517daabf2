"""An operator's retry is a line in the log, like every other thing that happens to a task."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.ops import actions
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations import drive, lifecycle, retry
from redrive_kit.conformance.harness import Harness

from .making import fail


@pytest.mark.parametrize("way", ["one", "many", "bulk"])
async def test_each_retried_task_is_logged_with_who_and_why(
    harness: Harness, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.INFO, "redrive.ops")
    ids = await fail(harness, 3, kind="BROKEN", trace_id="trace-1")
    store = harness.store
    bulk_id: str | None = None
    if way == "one":
        ids = ids[:1]
        await actions.retry(store, ids, actor="ann", reason="mended")
        await actions.retry(store, ids, actor="ann", reason="it is queued now, and nothing happens")
    elif way == "many":
        bulk_id = (
            await retry.retry_matching(
                store, FailureFilter(kind="BROKEN"), actor="ann", rule=UNRESTRICTED, reason="mended"
            )
        ).bulk_id
    else:
        operation, _ = await lifecycle.begin(
            store, Action.RETRY, FailureFilter(kind="BROKEN"), actor="ann", rule=UNRESTRICTED, reason="mended"
        )
        bulk_id = operation.id
        await drive.drive(store, "driver", lambda: False)
    said: list[dict[str, Any]] = [vars(r) for r in caplog.records if getattr(r, "event", "") == "task.retried"]
    assert {line["task_id"] for line in said} == {str(task_id) for task_id in ids} and len(said) == len(ids)
    names = ("kind", "queue", "attempt", "trace_id", "actor", "reason", "bulk_id")
    assert {tuple(line[name] for name in names) for line in said} == {
        ("BROKEN", "default", 0, "trace-1", "ann", "mended", bulk_id)
    }
