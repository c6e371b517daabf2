"""Whether a page with forms has changed since it was made. Its forms belong to whoever looks, so it is not pushed: it
says that there is something new, and is refreshed when somebody asks for it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping

from redrive.console.sample import Sample, Sampler
from redrive.ops.operator import Operator


def of(look: Callable[[Operator], Awaitable[object]]) -> Sampler:
    """Returns how the page is sampled whose state this look returns; it has to be the same as long as nothing has
    changed."""

    async def sample(operator: Operator) -> Mapping[str, str]:
        return {"changed": hashlib.sha256(repr(await look(operator)).encode()).hexdigest()[:16]}

    def sampler(_: str) -> Sample:
        return sample

    return sampler


def cause(fingerprint: str) -> Sample:
    """Samples what people say of a cause."""

    async def said(operator: Operator) -> object:
        found = await operator.causes.show(fingerprint)
        return found.note, found.owner, found.status

    return of(said)(fingerprint)


async def approvals(operator: Operator) -> object:
    return [(record.id, record.state) for record in await operator.approvals.list(limit=50)]


async def schedules(operator: Operator) -> object:
    return await operator.schedules.list()


async def queues(operator: Operator) -> object:
    """Without numbers, which change all the time."""
    found = await operator.control.look()
    limits = [(one.limit.kind, one.limit.concurrency, one.limit.rate_ms) for one in found.kinds if one.limit]
    circuits = [one.name for one in found.kinds if one.circuit is not None]
    return limits, found.holds, circuits, [(one.name, one.workers > 0) for one in found.queues]


async def alerts(operator: Operator) -> object:
    """Without numbers, which stand in the texts."""
    found = await operator.alerts.look()
    shown = [(one.alert.key, one.alert.state) for one in (*found.firing, *found.pending, *found.ended)]
    return shown, found.silences, found.lost
