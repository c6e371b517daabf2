"""Provides the pytest fixture ``redrive_app``, in any test, async or not, whatever runs the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from redrive.app import App
from redrive.testing.kit import TestKit, using_sync


@pytest.fixture
def redrive_app() -> Iterator[Callable[..., TestKit]]:
    """Returns a factory: ``kit = redrive_app(app)`` rebinds your App to memory until the test ends.

    Without an argument it makes a fresh App, as ``kit.app``. Drain with ``await kit.drain()`` or
    ``kit.drain_sync()``.
    """
    with ExitStack() as stack:

        def make(app: App | None = None) -> TestKit:
            return stack.enter_context(using_sync(app))

        yield make
