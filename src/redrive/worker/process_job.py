"""Defines what travels between a worker and a handler's process: the job, and the verdicts that come back."""

from __future__ import annotations

import copyreg
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redrive.kernel.outcome import Cancel, Done, Fail, Retry, Snooze, Verdict
from redrive.kernel.task import Claimed
from redrive.settings import DEFAULT_CONNECTION


@dataclass(slots=True, frozen=True)
class Job:
    """What a child needs to run one attempt: everything here is pickled."""

    module: str
    name: str
    task: Claimed
    arguments: dict[str, Any]
    worker_id: str
    deterministic: tuple[type[BaseException], ...] = ()
    log_levels: dict[str, int] = field(default_factory=dict)
    connection: str = DEFAULT_CONNECTION
    rules: bytes = b""  # what the application knows about its failures, as ``failures.packed`` makes it
    trace: str | None = None  # the span of the attempt, which is the worker's


def resolve(module: str, name: str) -> Callable[..., Any]:
    """Returns the function by its module and name, in whatever process this is."""
    found: Any
    if module == "__main__":
        found = sys.modules.get("__mp_main__") or sys.modules["__main__"]
    else:
        found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # The decorated name is the task object; its function is what runs.
    return getattr(found, "function", found)  # type: ignore[no-any-return]


def _remake(kind: type[Verdict], args: tuple[Any, ...], values: dict[str, Any]) -> Verdict:
    verdict = kind.__new__(kind, *args)
    vars(verdict).update(values)
    return verdict


# An exception is unpickled by calling its class with its text, which is not what these take.
for _kind in (Snooze, Retry, Fail, Done, Cancel):
    copyreg.pickle(_kind, lambda said: (_remake, (type(said), said.args, vars(said))))
