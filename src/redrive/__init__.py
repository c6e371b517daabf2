"""Durable background work for Python whose failures can be found, explained and replayed."""

from redrive.app import App
from redrive.errors import ErrorCode, RedriveError
from redrive.handlers.bulk import Bulk, Item
from redrive.handlers.context import Context
from redrive.kernel.classify import Classification
from redrive.kernel.outcome import Cancel, Done, Fail, Retry, Snooze, StopReason
from redrive.kernel.task import State, Task
from redrive.observe.current import TaskFields
from redrive.version import __version__
from redrive.worker.worker import Worker

__all__ = [
    "App",
    "Bulk",
    "Cancel",
    "Classification",
    "Context",
    "Done",
    "ErrorCode",
    "Fail",
    "Item",
    "RedriveError",
    "Retry",
    "Snooze",
    "State",
    "StopReason",
    "Task",
    "TaskFields",
    "Worker",
    "__version__",
]
