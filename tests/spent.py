"""What a run spends: seconds and processor seconds by folder and by file, and the memory of its processes."""

from __future__ import annotations

import ctypes
import itertools
import os
import resource
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

MANY = 300  # tests: of fewer, --durations says more
LARGEST, PROCESSOR, GREW = "largest_mb", "processor_seconds", "grew_mb"


class Meter:
    """In each process of a run: measures what its tests use."""

    def __init__(self) -> None:
        self._ended = itertools.count(1)
        self._before = 0.0
        self._largest = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._before, self._largest = _processor_seconds(), _largest_mb()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((PROCESSOR, _processor_seconds() - self._before))
            report.user_properties.append((GREW, _largest_mb() - self._largest))
        return report

    def pytest_runtest_logfinish(self) -> None:
        """Gives back to the system what tests have freed, now and then: malloc would keep it, for each thread."""
        if next(self._ended) % 50 == 0:
            with suppress(OSError, AttributeError):  # another libc
                ctypes.CDLL(None).malloc_trim(0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remembers how much memory it had at most."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[LARGEST] = _largest_mb()


def _processor_seconds() -> float:
    """Returns what this process has used, and those that it has waited for; the run's server is none of them."""
    return sum(os.times()[:4])


def _largest_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


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
        if sum(one.when == "call" for one in reports) < MANY:
            return
        folders, files = Counter[str](), Counter[str]()
        used_in_folders, used_in_files, grew = Counter[str](), Counter[str](), Counter[str]()
        for one in reports:
            path = one.nodeid.partition("::")[0]
            folder = path.removeprefix("tests/").partition("/")[0]
            noted = dict(one.user_properties) if one.when == "teardown" else {}
            used = noted.get(PROCESSOR, 0.0)
            grew[path] += noted.get(GREW, 0)
            for counts, name, n in (
                *((folders, folder, one.duration), (files, path, one.duration)),
                *((used_in_folders, folder, used), (used_in_files, path, used)),
            ):
                counts[name] += n
        terminalreporter.section("where the seconds went (of a processor)")
        terminalreporter.line(f"all {folders.total():.0f} ({used_in_folders.total():.0f})")
        terminalreporter.line(
            ", ".join(f"{name} {seconds:.0f} ({used_in_folders[name]:.0f})" for name, seconds in folders.most_common())
        )
        for path, seconds in files.most_common(30):
            terminalreporter.line(f"{seconds:7.1f} ({used_in_files[path]:5.1f})  {path}")
        if self.largest:
            terminalreporter.line(f"largest processes, MB: {', '.join(map(str, sorted(self.largest, reverse=True)))}")
            terminalreporter.line(f"grew most by {', '.join(f'{path} {mb}' for path, mb in grew.most_common(12))}")
