"""Divides the first import of test modules among the processes of a run.

pytest rewrites the assertions of a module when it is first imported, and keeps the result beside it. Processes that
import the same modules in the same order at the same time all do the same work, twenty seconds of it in a new checkout;
begun at different places, each finds there what the others have done.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def import_own_share_first(config: pytest.Config) -> None:
    """Imports, in a run of all tests, what no other process imports first. What fails is told when it is collected."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, count = int(workerinput["workerid"].removeprefix("gw")), workerinput["workercount"]
    for path in sorted(HERE.rglob("test_*.py"))[number::count]:
        name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
        try:
            importlib.import_module(name)
        except (Exception, pytest.skip.Exception):
            continue
