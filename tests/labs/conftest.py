"""Labs are called as a command."""

from tests.cli.conftest import redrive

__all__ = ["redrive"]
