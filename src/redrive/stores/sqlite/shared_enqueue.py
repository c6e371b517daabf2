"""Makes one request of enqueues that wait together: a lone task costs a statement, a hundred of them hardly more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from redrive.kernel.task import NewTask
from redrive.stores.sqlite.connection_thread import Answer, Request
from redrive.stores.sqlite.enqueue import enqueue

MAX_TASKS_PER_REQUEST = 1000


@dataclass(slots=True, eq=False)
class Enqueue(Request):
    """A request that only enqueues."""

    tasks: Sequence[NewTask] = ()


def enqueues_together(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yields the requests in order, with neighbouring enqueues together."""
    together: list[Request] = []
    size = 0
    for request in requests:
        count = len(request.tasks) if isinstance(request, Enqueue) else MAX_TASKS_PER_REQUEST
        if together and size + count > MAX_TASKS_PER_REQUEST:
            yield together
            together, size = [], 0
        together.append(request)
        size += count
    if together:
        yield together


def merged(together: Sequence[Request]) -> Request:
    """Returns one request for all of these; ``split`` gives each its answer."""
    tasks = [task for request in together if isinstance(request, Enqueue) for task in request.tasks]
    return Request(partial(enqueue, tasks=tasks), together[0].loop, together[0].future)


def split(together: Sequence[Request], answer: Answer) -> list[Answer]:
    """Returns the answer of each request from the answer to all."""
    answers, start = [], 0
    for request in together:
        end = start + (len(request.tasks) if isinstance(request, Enqueue) else 0)
        answers.append(Answer(request, answer.value[start:end]))
        start = end
    return answers
