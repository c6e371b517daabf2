"""Enqueues that wait together become one: a lone task costs a statement, a hundred of them hardly more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from redrive.kernel.task import NewTask
from redrive.stores.sqlite.connection_thread import Answer, Request
from redrive.stores.sqlite.enqueue import enqueue

MAX_TASKS = 1000


@dataclass(slots=True, eq=False)
class Enqueue(Request):
    """New tasks and nothing else."""

    tasks: Sequence[NewTask] = ()


def batches(group: Sequence[Request]) -> Iterator[list[Request]]:
    """The group in order, with neighbouring enqueues together."""
    batch: list[Request] = []
    size = 0
    for request in group:
        count = len(request.tasks) if isinstance(request, Enqueue) else MAX_TASKS
        if batch and size + count > MAX_TASKS:
            yield batch
            batch, size = [], 0
        batch.append(request)
        size += count
    if batch:
        yield batch


def merged(batch: Sequence[Request]) -> Request:
    """One request for all of a batch; it is answered through ``split``."""
    tasks = [task for request in batch if isinstance(request, Enqueue) for task in request.tasks]
    return Request(partial(enqueue, tasks=tasks), batch[0].loop, batch[0].future)


def split(batch: Sequence[Request], answer: Answer) -> list[Answer]:
    answers, start = [], 0
    for request in batch:
        end = start + (len(request.tasks) if isinstance(request, Enqueue) else 0)
        answers.append(Answer(request, answer.value[start:end]))
        start = end
    return answers
