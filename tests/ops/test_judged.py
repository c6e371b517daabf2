"""Whatever an operator can do to tasks is judged: each action of ``Operator`` is listed here, and tried."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from redrive.errors import ApprovalNeeded
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import NewTask, State
from redrive.ops import allowance
from redrive.ops.access import Role
from redrive.ops.allowance import PlannedAction, Rule, judge
from redrive.ops.operations import erase, lifecycle, retry
from redrive.ops.operations.drive import step
from redrive.ops.operations.lifecycle import How
from redrive.ops.operator import Operator
from redrive.ops.operator.operator import SERVICES
from redrive_kit.conformance.harness import Harness
from tests.ops.making import fail
from tests.ops.test_operator import operator

A = FailureFilter(kind="A")
SAID = How(fixed="it", idempotent=True)
Try = Callable[[Operator, list[UUID]], Awaitable[Any]]


async def _replay(own: Operator, ids: list[UUID]) -> Any:
    return await own.failures.replay(await own.failures.select(A, 10))


async def _put_back(own: Operator, ids: list[UUID]) -> Any:
    store = own.operations._store
    await store.apply(Commit(enqueues=[NewTask(new_id(), "W", "w", None)]))
    purge, _ = await lifecycle.begin(
        store, Action.PURGE, FailureFilter(queue="w"), actor="app", rule=allowance.UNRESTRICTED
    )
    while await step(store, purge.id, "w1") is not None:
        pass
    return await own.operations.put_back(purge.id)


async def _retry_cause(own: Operator, ids: list[UUID]) -> Any:
    [cause] = (await own.causes.list()).causes
    return await own.causes.retry(cause.row.fingerprint)


# These run tasks again or give them up. Nobody may do so to a single one alone where the number is 0.
JUDGED: dict[str, list[Try]] = {
    "tasks.retry": [lambda own, ids: own.tasks.retry(ids[0])],
    "tasks.cancel": [lambda own, ids: own.tasks.cancel(ids), lambda own, ids: own.tasks.cancel(ids[:1])],
    "failures.retry": [lambda own, ids: own.failures.retry(ids), lambda own, ids: own.failures.retry(ids[:1])],
    "failures.retry_matching": [
        lambda own, ids: own.failures.retry_matching(A),
        lambda own, ids: own.failures.retry_matching(limit=1),
        lambda own, ids: own.failures.retry_matching(FailureFilter(ids=tuple(ids))),
    ],
    "failures.forget": [lambda own, ids: own.failures.forget(ids), lambda own, ids: own.failures.forget(ids[:1])],
    "failures.replay": [_replay],
    "operations.begin": [
        lambda own, ids: own.operations.begin(Action.RETRY, A),
        lambda own, ids: own.operations.begin(Action.RETRY, how=SAID),
        lambda own, ids: own.operations.begin(Action.FORGET, A),
        lambda own, ids: own.operations.begin(Action.FORGET, how=SAID),
        lambda own, ids: own.operations.begin(Action.PURGE, FailureFilter(queue="default")),
    ],
    "operations.put_back": [_put_back],
    "causes.retry": [_retry_cause],
    "erasures.begin": [
        lambda own, ids: own.erasures.begin(scope="s1"),
        lambda own, ids: own.erasures.begin(task_id=ids[0]),
    ],
}
# These do not, and why.
TAKEN_BACK_BY_ONE_COMMAND = {
    *("circuits.open", "circuits.close", "circuits.probe"),
    "tasks.pause",
    "tasks.resume",
    "control.pause",
    "control.resume",
    "control.set_limit",
    "control.change_limit",
} | {
    "schedules.pause",
    "schedules.resume",
}
ITS_OWN_TASK = {"tasks.enqueue", "health.drill", "schedules.run_now"}
ENDS_NO_TASK = {"workers.drain", "workers.drain_all"}  # what the worker runs is finished or handed back
OF_WHAT_WAS_JUDGED = {
    "approvals.approve",
    "approvals.reject",
    "operations.pause",
    "operations.resume",
    "operations.cancel",
}
FENCED_BY_A_LEASE = {"executors.claim", "executors.heartbeat", "executors.report"}
NO_TASKS = {
    *("causes.annotate", "causes.note", "causes.mute", "causes.resolve", "causes.reopen"),
    "audit.prune",
    "audit.export",
    "audit.verify",
    "audit.archive",
    "tokens.create",
    "tokens.revoke",
    "alerts.silence",
    "alerts.test",
    "alerts.unsilence",
    "failures.preview",  # writes down what it showed
}
LOOKS = {
    *("circuits.list", "circuits.show", "failures.types"),
    "tasks.list",
    "control.has_any",
    "schedules.show",
    "tasks.get",
    "tasks.document",
    "tasks.get_many",
    "tasks.meant",
    "tasks.show",
    "tasks.why",
    "tasks.surroundings",
    "tasks.is_only_declared",
    "failures.list",
    "failures.known",
    "failures.count",
    "failures.statistics",
    "failures.dead_letters",
    "failures.dry_run",
    "failures.foresee",
    "failures.select",
    "causes.list",
    "causes.show",
    *("causes.get", "operations.get", "operations.records", "operations.begun"),
    "causes.break_down",
    "approvals.obstacles",
    "operations.obstacles",
    "operations.obstacles_of",
    "operations.preview",
    "operations.list",
    "operations.show",
    "operations.record",
    "operations.retried",
    "operations.has_driver",
    "approvals.list",
    *("approvals.show", "approvals.records"),
    "control.traffic",
    "control.queues",
    "control.kinds",
    *("workers.list", "workers.show"),
    "control.check_queue",
    "control.has_tasks",
    "control.limits",
    "audit.query",
    "erasures.preview",
    "tokens.list",
    "health.now",
    "health.identity",
    "health.history",
    "health.rates",
    "tasks.find",
    "failures.search",
    "failures.end",
    "control.holds",
    "workers.fleet",
    "schedules.list",
    "settings.list",
    "health.stats",
    "overview.show",
    "health.examine",
    "health.triage",
    "health.drills",
    "tokens.any",
    "tasks.seen",
    "tasks.check_seen",
    "health.oldest_kinds",
    "approvals.is_own",
    "approvals.waiting_tasks",
    "alerts.at",
    "alerts.current",
    "alerts.services",
    "tasks.known",
    "failures.planned_at",
}
OTHERS = (
    TAKEN_BACK_BY_ONE_COMMAND | ITS_OWN_TASK | ENDS_NO_TASK | OF_WHAT_WAS_JUDGED | FENCED_BY_A_LEASE | NO_TASKS | LOOKS
)


def actions_of(own: Operator) -> set[str]:
    """Everything that can be asked of an operator, by service."""
    services = {name: getattr(own, name) for name in SERVICES}
    return {
        f"{name}.{method}"
        for name, part in services.items()
        for method, _ in inspect.getmembers(type(part), inspect.isfunction)
        if not method.startswith("_")
    }


async def test_every_action_is_decided_about(harness: Harness) -> None:
    known = actions_of(operator(harness))
    assert known - set(JUDGED) - OTHERS == set(), "does it run tasks again, or give them up? Then it is to be judged"
    assert (set(JUDGED) | OTHERS) - known == set()


@pytest.mark.parametrize("action", sorted(JUDGED))
async def test_nothing_moves_unjudged(harness: Harness, action: str) -> None:
    ids = await fail(harness, 3, scope="s1")
    nobody = operator(harness, Role.ADMIN, approvals_above=0)
    for nth, attempt in enumerate(JUDGED[action]):
        try:
            begun = await attempt(nobody, ids)
        except ApprovalNeeded as refused:
            assert refused.hint is not None and "operation" in refused.hint
        else:
            assert begun.approval is not None, f"{action}, way {nth}"
        assert [await harness.state(task_id) for task_id in ids] == [State.FAILED] * 3, f"{action}, way {nth}"


@pytest.mark.parametrize("above", [None, 0])
async def test_off_is_off_and_none_is_none(harness: Harness, above: int | None) -> None:
    for planned in (
        PlannedAction(Action.RETRY, 5),
        PlannedAction(Action.PURGE, 0, "always"),
        PlannedAction(Action.RETRY, 0),
    ):
        verdict = await judge(harness.store, Rule(above), "ann", planned)
        assert (verdict.why is None) == (above is None or (planned.number == 0 and planned.always is None))


@pytest.mark.parametrize("taking", [retry.retry_matching, lifecycle.begin, erase.begin, judge, allowance.alone])
def test_nobody_forgets_the_rule(taking: Callable[..., Any]) -> None:
    """A rule that is left out would be no rule."""
    assert inspect.signature(taking).parameters["rule"].default is inspect.Parameter.empty
    assert inspect.signature(Rule).parameters["above"].default is inspect.Parameter.empty
