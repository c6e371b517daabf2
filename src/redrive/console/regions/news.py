"""What is new in lists since they were made; a list itself is refreshed when somebody asks for it.

One look a second serves all who have the same list open, whenever they opened it: it says which rows come first now,
and a page counts those that it does not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qsl, unquote

from redrive.api.filters import audits
from redrive.console.filters import AUDIT_FIELDS, names_of, of_failures, refuse_unknown_of
from redrive.console.sample import Sample
from redrive.kernel.operation import moment
from redrive.ops import filters
from redrive.ops.inspect import parse_states
from redrive.ops.operator import Operator

MOST_NEW = 20  # are counted; of more there are "20+"
Newest = Callable[[Operator], Awaitable[Iterable[object]]]


def failures(argument: str) -> Sample:
    """Samples failed tasks: also how many there are, as others may have been retried."""
    which = of_failures(_fields(argument, *names_of()))

    async def sample(operator: Operator) -> Mapping[str, str]:
        places, total = await operator.failures.end(which, MOST_NEW + 1)
        return {"failures": f"{','.join(map(str, places))}/{total}"}

    return sample


def tasks(argument: str) -> Sample:
    given = _fields(argument, "state", *names_of())
    state = given.pop("state", None)
    query = filters.query(
        of_failures(given), states=parse_states([state]) if state else (), limit=MOST_NEW + 1, brief=True
    )

    async def newest(operator: Operator) -> Iterable[object]:
        return [task.id for task in (await operator.tasks.list(query)).tasks]

    return _listed(newest)


def dead_letters(argument: str) -> Sample:
    """Samples dead letters by when they were written: their ids say nothing about it."""
    which = of_failures(_fields(argument, *names_of()))

    async def newest(operator: Operator) -> Iterable[object]:
        return [moment(one.dead_at) for one in await operator.failures.dead_letters(which, limit=MOST_NEW + 1)]

    return _listed(newest)


def audit(argument: str) -> Sample:
    which = audits(**_fields(argument, *AUDIT_FIELDS))

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
