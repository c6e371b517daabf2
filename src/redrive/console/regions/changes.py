"""Regions of pages that say whether they have changed: forms, lists, one task; and the table of workers.

Forms belong to whoever looks, so a page with forms is not pushed: it says that there is something new, and is refreshed
when somebody asks for it. So is a list. One look a second serves all who have the same list open, whenever they opened
it: it says which rows come first now, and a page counts those that it does not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qsl, unquote

from redrive.console.filters import AUDIT_FIELDS, of_audit, of_failures, refuse_unknown_of
from redrive.console.live import Sample, Sampler
from redrive.console.templates_env import render
from redrive.kernel.operation import moment
from redrive.ops import filters
from redrive.ops.filters import filters_by_name
from redrive.ops.inspect import parse_id, parse_states
from redrive.ops.operator import Operator

MOST_NEW = 20  # are counted; of more there are "20+"
Newest = Callable[[Operator], Awaitable[Iterable[object]]]


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
        found = await operator.causes.get(fingerprint)
        return found.note, found.owner, found.status

    return of(said)(fingerprint)


async def approvals(operator: Operator) -> object:
    return [(record.id, record.state) for record in await operator.approvals.records(limit=50)]


async def schedules(operator: Operator) -> object:
    return await operator.schedules.list()


async def queues(operator: Operator) -> object:
    """Without numbers, which change all the time."""
    found = await operator.control.traffic()
    limits = [(one.name, one.concurrency, one.rate_limit_ms) for one in found.kinds]
    circuits = [one.name for one in found.kinds if one.circuit is not None]
    return limits, found.holds, circuits, [(one.name, one.workers > 0) for one in found.queues]


async def alerts(operator: Operator) -> object:
    """Without numbers, which stand in the texts."""
    found = await operator.alerts.current()
    shown = [(one.key, one.state) for one in (*found.firing, *found.pending, *found.resolved)]
    return shown, found.silences, found.lost


def failures(argument: str) -> Sample:
    """Samples failed tasks: also how many there are, as others may have been retried."""
    which = of_failures(_fields(argument, *filters_by_name()))

    async def sample(operator: Operator) -> Mapping[str, str]:
        places, total = await operator.failures.end(which, MOST_NEW + 1)
        return {"failures": f"{','.join(map(str, places))}/{total}"}

    return sample


def tasks(argument: str) -> Sample:
    given = _fields(argument, "state", *filters_by_name())
    state = given.pop("state", None)
    query = filters.query(
        of_failures(given), states=parse_states([state]) if state else (), limit=MOST_NEW + 1, brief=True
    )

    async def newest(operator: Operator) -> Iterable[object]:
        return [task.id for task in (await operator.tasks.list(query)).tasks]

    return _listed(newest)


def dead_letters(argument: str) -> Sample:
    """Samples dead letters by when they were written: their ids say nothing about it."""
    which = of_failures(_fields(argument, *filters_by_name()))

    async def newest(operator: Operator) -> Iterable[object]:
        return [moment(one.dead_at) for one in await operator.failures.dead_letters(which, limit=MOST_NEW + 1)]

    return _listed(newest)


def audit(argument: str) -> Sample:
    which = of_audit(_fields(argument, *AUDIT_FIELDS))

    async def newest(operator: Operator) -> Iterable[object]:
        return [row.id for row in (await operator.audit.query(which, page_size=MOST_NEW + 1)).rows]

    return _listed(newest)


def _listed(newest: Newest) -> Sample:
    async def sample(operator: Operator) -> Mapping[str, str]:
        return {"listed": ",".join(map(str, await newest(operator)))}

    return sample


def _fields(argument: str, *known: str) -> dict[str, str]:
    # Quoted once more by the page, so that no comma of a filter ends the topic.
    given = dict(parse_qsl(unquote(argument)))
    refuse_unknown_of(given, *known)
    return given


def task(task_id: str) -> Sample:
    which = parse_id(task_id)

    async def sample(operator: Operator) -> Mapping[str, str]:
        seen = await operator.tasks.seen(which)
        state = seen.partition(":")[0]
        return {"#state": render("regions/state.html", operator, state=state), "changed": seen}

    return sample


def workers(_: str) -> Callable[[Operator], Awaitable[Mapping[str, str]]]:
    return sample_fleet


async def sample_fleet(operator: Operator) -> Mapping[str, str]:
    fleet, now = await operator.workers.fleet(), await operator.health.now()
    return {"#fleet": render("regions/fleet.html", operator, fleet=fleet, now=now)}
