"""Queues, kinds, groups of tasks, workers: what there is, paused, resumed, limited."""

from __future__ import annotations

from fastapi import APIRouter

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import Admin, By, Opened, Said, TheApp, Viewer, actor
from redrive.api.problems import PROBLEMS
from redrive.kernel.store import Overview, Store
from redrive.kernel.task import State
from redrive.ops import actions, inspect

router = APIRouter(prefix="/api", tags=["control"], responses=PROBLEMS)
_NONE = {state.value: 0 for state in State}


@router.get("/queues")
async def queues(store: Opened, app: TheApp, caller: Viewer) -> list[m.QueueOut]:
    """Every queue that has or had tasks, is served, is paused, or is named by the application."""
    overview = await store.overview()
    totals = inspect.Stats(await store.counts(), overview, []).by("queue")
    workers = [shown.worker(row, overview) for row in overview.workers]
    return [
        m.QueueOut(
            name=name, paused=_hold(overview, "queue", name), totals=totals.get(name, _NONE),
            workers=sum(worker.alive and name in worker.queues for worker in workers),
        )
        for name in sorted(await inspect.known_queues(store, app.queues()))
    ]  # fmt: skip


@router.get("/kinds")
async def kinds(store: Opened, app: TheApp, caller: Viewer) -> list[m.KindOut]:
    """Every kind, with its totals, limits and pause."""
    overview = await store.overview()
    totals = inspect.Stats(await store.counts(), overview, []).by("kind")
    known = await inspect.known_kinds(store, list(app.registry.handlers))
    return [_kind(name, overview, totals.get(name, _NONE)) for name in sorted(known)]


@router.put("/kinds/{name}/limits")
async def limits(name: str, body: m.LimitsIn, store: Opened, app: TheApp, caller: Admin) -> m.KindOut:
    """What the whole fleet may do with a kind, from now on; what is left out is unlimited."""
    await inspect.check_kind(store, name, list(app.registry.handlers))
    await actions.set_limit(
        store, name, concurrency=body.concurrency, rate_ms=body.rate_limit_ms, actor=actor(caller, body.actor)
    )
    overview = await store.overview()
    totals = inspect.Stats(await store.counts(), overview, []).by("kind")
    return _kind(name, overview, totals.get(name, _NONE))


@router.post("/queues/{name}/pause")
async def pause_queue(name: str, store: Opened, app: TheApp, by: By) -> m.HoldChange:
    """Nothing of it is claimed any more; what runs goes on."""
    await inspect.check_queue(store, name, app.queues())
    return await _turn("queue", name, True, store, by)


@router.post("/queues/{name}/resume")
async def resume_queue(name: str, store: Opened, app: TheApp, by: By) -> m.HoldChange:
    await inspect.check_queue(store, name, app.queues())
    return await _turn("queue", name, False, store, by)


@router.post("/kinds/{name}/pause")
async def pause_kind(name: str, store: Opened, app: TheApp, by: By) -> m.HoldChange:
    await inspect.check_kind(store, name, list(app.registry.handlers))
    return await _turn("kind", name, True, store, by)


@router.post("/kinds/{name}/resume")
async def resume_kind(name: str, store: Opened, app: TheApp, by: By) -> m.HoldChange:
    await inspect.check_kind(store, name, list(app.registry.handlers))
    return await _turn("kind", name, False, store, by)


@router.post("/task-groups/{name}/pause")
async def pause_group(name: str, store: Opened, by: By) -> m.HoldChange:
    """Tasks of this group, of whatever kind, also those that come later."""
    return await _turn("group", name, True, store, by)


@router.post("/task-groups/{name}/resume")
async def resume_group(name: str, store: Opened, by: By) -> m.HoldChange:
    return await _turn("group", name, False, store, by)


@router.get("/workers")
async def workers(store: Opened, caller: Viewer) -> list[m.WorkerOut]:
    """Workers that were seen within the last day."""
    overview = await store.overview()
    return [shown.worker(row, overview) for row in overview.workers]


def _hold(overview: Overview, target: str, name: str) -> m.HoldOut | None:
    found = next((hold for hold in overview.holds if (hold.target, hold.name) == (target, name)), None)
    return None if found is None else m.HoldOut.model_validate(found)


def _kind(name: str, overview: Overview, totals: dict[str, int]) -> m.KindOut:
    limit = next((limit for limit in overview.limits if limit.kind == name), None)
    return m.KindOut(
        name=name, paused=_hold(overview, "kind", name), totals=totals, dead_letters=totals["failed"],
        concurrency=None if limit is None else limit.concurrency,
        rate_limit_ms=None if limit is None else limit.rate_ms,
        running=limit.running if limit is not None and limit.concurrency is not None else None,
        limited_by=None if limit is None else limit.actor,
    )  # fmt: skip


async def _turn(target: str, name: str, on: bool, store: Store, by: Said) -> m.HoldChange:
    changed = await actions.hold(store, target, name, on=on, **by)
    return m.HoldChange(target=target, name=name, paused=on, changed=changed)
