"""The failure drill: make a failure, find it, retry it, verify it, and write down how it went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

from redrive.errors import RedriveError
from redrive.ids import new_id
from redrive.kernel.audit import Audit, AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.task import State, Task
from redrive.ops import actions, failures
from redrive.ops.actions import check_actor

COLLECTION = "drill"
KIND = "SYSTEM_DRILL"


class Skipped(Exception):
    """A step that could not be taken here, and why; that says nothing about the system."""


Look = Callable[[UUID, str], Awaitable[str]]


@dataclass(slots=True)
class Step:
    name: str
    ok: bool
    detail: str
    seconds: float
    skipped: bool = False


@dataclass(slots=True)
class Drill:
    id: str
    operator: str
    task_id: UUID | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return bool(self.steps) and all(step.ok for step in self.steps)

    @property
    def conclusion(self) -> str:
        wrong = [step.name for step in self.steps if not step.ok]
        if not self.passed:
            return f"failed at: {', '.join(wrong) or 'the beginning'}"
        skipped = [step.name for step in self.steps if step.skipped]
        return f"passed, but skipped: {', '.join(skipped)}" if skipped else "passed"


async def run(
    store: Store,
    enqueue: Callable[[str, str], Awaitable[Task]],
    *,
    actor: str,
    patience: float = 30.0,
    looks: Mapping[str, Look] = MappingProxyType({}),
) -> Drill:
    """Runs a drill and returns how it went. ``enqueue(drill id, scope)`` makes the test task; ``looks`` find it, by id
    and scope, through the faces that an operator uses."""
    drill = Drill(str(new_id()), check_actor(actor))
    scope = f"drill:{drill.id}"

    async def made() -> str:
        drill.task_id = (await enqueue(drill.id, scope)).id
        return f"task {drill.task_id}, marked by its scope {scope}"

    async def failure() -> str:
        task = await _until(store, drill, State.FAILED, patience)
        return f"{task.error_code}: {task.error_message}"

    async def listed() -> str:
        found = await failures.list_failed(store, FailureFilter(scope=scope))
        if [task.id for task in found] != [drill.task_id]:
            raise RedriveError("the failed task is not in the list of failures")
        return "found in the list of failures by its scope"

    async def retried() -> str:
        result = await actions.retry(store, [_id(drill)], actor=drill.operator, reason=f"drill {drill.id}")
        actions.insist(result, "retried")
        return f"by {drill.operator}"

    async def effect() -> str:
        task = await _until(store, drill, State.COMPLETED, patience)
        if task.result != {"drill_id": drill.id, "effect": "done", "replays": 1}:
            raise RedriveError(f"its effect is {task.result!r}")
        return "completed after the retry, with its effect"

    async def audited() -> str:
        rows = await store.audit(AuditFilter(task_id=_id(drill), action="TASK_RETRY"), limit=10)
        if [(row.actor, row.reason) for row in rows] != [(drill.operator, f"drill {drill.id}")]:
            raise RedriveError(f"the audit log has {len(rows)} retries of it by {[row.actor for row in rows]}")
        return f"one TASK_RETRY by {drill.operator}, with its reason"

    steps: dict[str, Callable[[], Awaitable[str]]] = {
        "make a test task": made,
        "it fails": failure,
        "it is listed": listed,
    }
    steps |= {name: partial(_look, look, drill, scope) for name, look in looks.items()}
    steps |= {"retry it": retried, "it completes": effect, "the audit log has it": audited}
    for name, step in steps.items():
        if not await _take(drill, name, step):
            break
    if not drill.passed and drill.task_id is not None:
        # Whatever went wrong, a task that was made to fail should not be found among the failures tomorrow.
        # One that still waits or runs is cancelled.
        done = await actions.forget(store, [drill.task_id], actor=drill.operator, reason=f"drill {drill.id}")
        await actions.cancel(store, list(done.skipped), actor=drill.operator, reason=f"drill {drill.id}")
    await _write_down(store, drill)
    return drill


async def _take(drill: Drill, name: str, step: Callable[[], Awaitable[str]]) -> bool:
    began = time.monotonic()
    ok, skipped = True, False
    try:
        detail = await step()
    except Skipped as why:
        detail, skipped = str(why), True
    except RedriveError as error:
        detail, ok = error.message, False
    drill.steps.append(Step(name, ok, detail, round(time.monotonic() - began, 3), skipped))
    return ok


async def _look(look: Look, drill: Drill, scope: str) -> str:
    return await look(_id(drill), scope)


async def _until(store: Store, drill: Drill, state: State, patience: float) -> Task:
    ends = time.monotonic() + patience
    while True:
        task = await actions.require(store, _id(drill))
        if task.state is state:
            return task
        if time.monotonic() > ends:
            raise RedriveError(
                f"after {patience:g} s it is {task.state.value}, not {state.value}: is a worker of queue {task.queue}"
                " alive, with the application that the task is of?"
            )
        await asyncio.sleep(0.1)


def _id(drill: Drill) -> UUID:
    if drill.task_id is None:
        raise RedriveError("there is no task")
    return drill.task_id


async def _write_down(store: Store, drill: Drill) -> None:
    body: dict[str, Any] = {
        "operator": drill.operator,
        "task_id": None if drill.task_id is None else str(drill.task_id),
        "conclusion": drill.conclusion,
        "steps": [asdict(step) for step in drill.steps],
    }
    row = Audit(
        drill.operator,
        "DRILL",
        drill.conclusion,
        drill.task_id,
        drill.id,
        None,
        {"passed": drill.passed},
        target=f"drill:{drill.id}",
    )
    state = "passed" if drill.passed else "failed"
    await store.apply(Commit(puts=[Put(COLLECTION, drill.id, body, state=state)], audits=[row]))
