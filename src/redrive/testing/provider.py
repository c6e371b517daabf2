"""A simulated provider as a process of its own, for tests of what speaks to one."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redrive.cli.support.kit import need_kit
from redrive.errors import ConfigError

STOP_SECONDS = 10


@dataclass(slots=True, frozen=True)
class SimulatedProvider:
    """A provider that runs: its address, and how it is configured (what ``[providers.NAME]`` says)."""

    url: str
    table: dict[str, Any]
    process: subprocess.Popen[str]

    def control(self, **changes: Any) -> dict[str, Any]:
        """Changes how it behaves, ``control(down_for=5)``; returns how it behaves now."""
        return self._ask("/_control", changes)

    def seen(self) -> dict[str, Any]:
        """Returns what was asked of it: how often each key was started, how often each job was polled."""
        return self._ask("/_seen")

    def _ask(self, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}{path}", data, timeout=30) as response:  # noqa: S310
            found: dict[str, Any] = json.load(response)
        return found


@contextmanager
def simulated_provider(*options: str) -> Iterator[SimulatedProvider]:
    """Runs ``redrive simulate provider`` on a free port for as long as it is used, with options as on the command
    line: ``simulated_provider("--duration", "0.1")``. It is part of redrive-kit."""
    need_kit("a simulated provider")
    command = [sys.executable, "-m", "redrive.cli", "simulate", "provider", "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise ConfigError(f"the simulated provider did not start: exit code {process.wait(STOP_SECONDS)}")
        said = json.loads(line)
        yield SimulatedProvider(said["url"], said["provider"], process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
