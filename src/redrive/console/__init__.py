"""The console: pages at ``/ops/queue`` for people who operate tasks, in a browser."""

from redrive.console.mount import add_console

__all__ = ["add_console"]
