"""What pages can listen to: a topic's name, perhaps with an argument, and how its state is sampled.

A sample maps names to texts: ``#id`` is the HTML of a region of the page, ``badge:NAME`` the number beside a page in
the menu, any other name a value for a script.
"""

from __future__ import annotations

from collections.abc import Mapping

from redrive.console.regions import changes, connections, fleet, history, menu, news, one_task, operations, overview
from redrive.console.sample import Sample, Sampler
from redrive.errors import InvalidInput

TOPICS: dict[str, Sampler] = {
    "menu": menu.sampler,
    "overview": overview.sampler,
    "connections": connections.sampler,
    "operation": operations.sampler,
    "operations": operations.list_sampler,
    "workers": fleet.sampler,
    "failures": news.failures,
    "tasks": news.tasks,
    "letters": news.dead_letters,
    "audit": news.audit,
    "task": one_task.sampler,
    "cause": changes.cause,
    "history": history.sampler,
    "alerts": changes.of(changes.alerts),
    "approvals": changes.of(changes.approvals),
    "queues": changes.of(changes.queues),
    "schedules": changes.of(changes.schedules),
}


def sampler(topic: str, topics: Mapping[str, Sampler] = TOPICS) -> Sample:
    """Returns how a topic is sampled; ``operation:ID`` has an argument."""
    name, _, argument = topic.partition(":")
    made = topics.get(name)
    if made is None:
        raise InvalidInput(f"there is no topic {name[:50]!r}")
    return made(argument)
