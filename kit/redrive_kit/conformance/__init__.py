# ruff: noqa: E402, F403 (assertions are rewritten before the suites are imported, and these are for others)
"""The contract of a store, as tests. Every store passes all of it; differences are capability flags.

Bind it in a test module, beside a fixture ``harness`` that yields a ``Harness`` for the store::

    from redrive_kit.conformance import *

    pytestmark = pytest.mark.anyio

A new store is written group by group: ``redrive_kit.conformance.groups.worker`` first, with ``Harness.reads = False``;
then ``reads``, ``features`` (as far as its capabilities go) and ``whole``.
"""

from __future__ import annotations

import pkgutil

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from redrive_kit.conformance.groups.features import *
from redrive_kit.conformance.groups.reads import *
from redrive_kit.conformance.groups.whole import *
from redrive_kit.conformance.groups.worker import *

__all__ = [name for name in globals() if name.startswith("Test")]
