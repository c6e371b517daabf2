"""What a run spends: seconds by folder and by file, and the memory of its largest process."""

from __future__ import annotations

import ctypes
import itertools
import resource
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

MANY = 300  # tests: of fewer, --durations says more
LARGEST = "largest_mb"
_ended = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    """Gives back to the system what tests have freed, now and then: malloc would keep it, for each thread by itself."""
    if next(_ended) % 50 == 0:
        with suppress(OSError, AttributeError):  # another libc
            ctypes.CDLL(None).malloc_trim(0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In each process of a run: remembers how much memory it had at most."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[LARGEST] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


class Spent:
    """In the process that the others report to."""

    def __init__(self) -> None:
        self.largest: list[int] = []

    @pytest.hookimpl(optionalhook=True)  # there are no others without xdist
    def pytest_testnodedown(self, node: Any) -> None:
        self.largest.append(getattr(node, "workeroutput", {}).get(LARGEST, 0))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        # Without those of subtests: their seconds are in those of their test.
        listed = [ones for kind, ones in terminalreporter.stats.items() if not kind.startswith("subtests")]
        reports = [one for ones in listed for one in ones if hasattr(one, "duration")]
        folders, files = Counter[str](), Counter[str]()
        for one in reports:
            path = one.nodeid.partition("::")[0]
            files[path] += one.duration
            folders[path.removeprefix("tests/").partition("/")[0]] += one.duration
        if sum(one.when == "call" for one in reports) < MANY:
            return
        terminalreporter.section("where the seconds went")
        terminalreporter.line(", ".join(f"{name} {seconds:.0f}" for name, seconds in folders.most_common()))
        for path, seconds in files.most_common(20):
            terminalreporter.line(f"{seconds:7.1f}  {path}")
        if self.largest:
            terminalreporter.line(f"largest processes, MB: {', '.join(map(str, sorted(self.largest, reverse=True)))}")
