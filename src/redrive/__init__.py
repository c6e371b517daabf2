"""Durable background work for Python whose failures can be found, explained and replayed."""

from typing import TYPE_CHECKING, Any

from redrive.version import __version__

if TYPE_CHECKING:
    from redrive.app_types import App
    from redrive.errors import ErrorCode, RedriveError
    from redrive.handlers.bulk import Bulk, Item
    from redrive.handlers.context import Context
    from redrive.handlers.events import TaskEvent
    from redrive.kernel.circuit import Circuit
    from redrive.kernel.classify import Classification
    from redrive.kernel.failure_rule import FailureRule
    from redrive.kernel.outcome import Cancel, Done, Fail, Retry, Snooze, StopReason
    from redrive.kernel.task import State, Task
    from redrive.observe.current import TaskFields
    from redrive.worker.worker import Worker

__all__ = [
    "App",
    "Bulk",
    "Cancel",
    "Circuit",
    "Classification",
    "Context",
    "Done",
    "ErrorCode",
    "Fail",
    "FailureRule",
    "Item",
    "RedriveError",
    "Retry",
    "Snooze",
    "State",
    "StopReason",
    "Task",
    "TaskEvent",
    "TaskFields",
    "Worker",
    "__version__",
]

# Where each name is at home. It is imported when it is asked for: a process that only enqueues loads no worker.
_HOMES = {
    "app": ("App",),
    "errors": ("ErrorCode", "RedriveError"),
    "handlers.bulk": ("Bulk", "Item"),
    "handlers.context": ("Context",),
    "handlers.events": ("TaskEvent",),
    "kernel.circuit": ("Circuit",),
    "kernel.classify": ("Classification",),
    "kernel.failure_rule": ("FailureRule",),
    "kernel.outcome": ("Cancel", "Done", "Fail", "Retry", "Snooze", "StopReason"),
    "kernel.task": ("State", "Task"),
    "observe.current": ("TaskFields",),
    "worker.worker": ("Worker",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
# Parts that can be named without importing them: ``except redrive.errors.StoreUnavailable``.
_PARTS = {
    "app",
    "errors",
    "feature",
    "features",
    "handlers",
    "ids",
    "integrations",
    "kernel",
    "observe",
    "ops",
    "remote",
    "settings",
}
_PARTS |= {"stores", "sync", "worker"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PARTS:
        return import_module(f"redrive.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'redrive' has no attribute {name!r}")
    found = getattr(import_module(f"redrive.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})
