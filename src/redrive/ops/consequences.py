"""Says what an operation does to its tasks, and whether that can be taken back, for whoever has to agree to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redrive.kernel.operation import Action, failures
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.reads import HoldRow
from redrive.kernel.records import Record
from redrive.kernel.task import WAITING
from redrive.ops.text import counted


def consequence(action: str, number: int) -> str:
    """Returns in plain words what becomes of so many tasks."""
    single, tasks = number == 1, counted(number)
    becomes, it_can = ("becomes", "it can") if single else ("become", "each can")
    match Action(action):
        case Action.PURGE:
            waiting = tasks.replace(" task", " waiting task")
            return (
                f"{waiting} {becomes} cancelled, and {'does' if single else 'do'} not run; {it_can} be retried by its"
                " id for as long as history keeps it, or all are put back from the page of the operation"
            )
        case Action.CANCEL:
            return (
                f"{tasks} that {'has' if single else 'have'} not ended {becomes} cancelled; what runs is asked to stop"
            )
        case Action.FORGET:
            failed = tasks.replace(" task", " failed task")
            return f"{failed} {becomes} cancelled and forgotten; {it_can} be retried by its id while history keeps it"
        case Action.RETRY:
            return f"{tasks} {'runs' if single else 'run'} again, with fresh attempts"
        case Action.ERASE:
            return "what is known is removed for good: nothing brings it back"
        case Action.WORK:
            return "a feature does what was asked of it, piece by piece"


@dataclass(slots=True, frozen=True)
class WaitingTasks:
    """The waiting tasks that a purge is about, as of now: since when the first of those that could run waits, when the
    latest was made, and the pauses behind which they wait."""

    oldest: datetime | None
    newest: datetime | None
    pauses: tuple[HoldRow, ...]


async def waiting_tasks(store: Store, approval: Record) -> WaitingTasks | None:
    """Returns what somebody wants to purge; None of other operations."""
    if approval.body["action"] != Action.PURGE:
        return None
    which = failures(approval.body["filter"])
    latest = await store.find(Query(WAITING, which.kind, which.queue, limit=1, brief=True))
    oldest = (
        (await store.oldest_kinds()).get(which.kind)
        if which.kind is not None
        else (await store.diagnose()).oldest.get(which.queue or "")
    )
    overview = await store.overview()
    targets = (("kind", which.kind), ("queue", which.queue))
    pauses = [overview.pause_of(target, name) for target, name in targets if name is not None]
    newest = latest[0].created_at if latest else None
    return WaitingTasks(oldest, newest, tuple(one for one in pauses if one is not None))
