"""The application: kinds, schedules, connections, and everything that is done with them."""

from redrive.app.application import DEFAULT_NAME, App
from redrive.app.connections import Served
from redrive.app.task_handler import TaskHandler

__all__ = ["DEFAULT_NAME", "App", "Served", "TaskHandler"]
