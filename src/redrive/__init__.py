"""Durable background work for Python whose failures can be found, explained and replayed."""

from redrive.app import App
from redrive.errors import ErrorCode, RedriveError
from redrive.handlers.bulk import Batch, Item
from redrive.handlers.context import Context
from redrive.kernel.outcome import Cancel, Fail, Retry, Snooze
from redrive.kernel.task import State, Task
from redrive.version import __version__

__all__ = [
    "App",
    "Batch",
    "Cancel",
    "Context",
    "ErrorCode",
    "Fail",
    "Item",
    "RedriveError",
    "Retry",
    "Snooze",
    "State",
    "Task",
    "__version__",
]
