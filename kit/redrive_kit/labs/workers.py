"""``redrive outbox work`` as an operator starts it: a process with a port of its own for metrics and health."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redrive_kit.labs.network import Answer, ask
from redrive_kit.labs.processes import Program, TooLate, environment

USUAL_PORT = 9109  # of tests and labs, next to the 9108 of production
STARTS_WITHIN_S = 60.0
LIVES_S = 3600.0
_SAMPLE = re.compile(r"^(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')
Metrics = dict[str, float]


def worker_environment(
    url: str, projection: str, sink: str, settings: Mapping[str, str], keep_s: float, *, fresh: bool
) -> dict[str, str]:
    """Returns what workers have as their environment: the URL may have a password, and command lines can be read by
    everybody."""
    projections = json.dumps({projection: {"sink": sink}})
    given = {"REDRIVE_URL": url, "OUTBOX_PROJECTIONS": projections, "OUTBOX_KEEP_SECONDS": str(keep_s)}
    return environment({**given, **settings}, fresh=fresh)


class OutboxWorker(Program):
    """A worker of one projection."""

    def __init__(
        self,
        name: str,
        projection: str,
        env: Mapping[str, str],
        directory: Path,
        *,
        cwd: Path | None = None,
        port: int = 0,
        lives_s: float = LIVES_S,
    ) -> None:
        """``port``: of its metrics; 0 takes any that is free. ``lives_s``: then it ends by itself, should whoever
        started it be killed."""
        log = directory / f"worker-{name}.log"
        arguments = ["redrive.cli", "outbox", "work", projection, "--id", f"{projection}-{name}"]
        arguments += ["--metrics-port", str(port), "--max-time", str(round(lives_s))]
        super().__init__(name, arguments, env, log, cwd=cwd)
        self.projection = projection
        self._at: str | None = None

    async def ready(self) -> None:
        """Waits until it serves its port and claims."""
        try:
            async with asyncio.timeout(STARTS_WITHIN_S):
                while (await self.ask("/readyz")).status != 200:
                    if not self.alive:
                        raise TooLate(f"worker {self.name} ended with {self.process.returncode}: {self.tail()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TooLate(f"worker {self.name} is not ready after {STARTS_WITHIN_S:g} s: {self.tail()}") from None

    async def ask(self, path: str) -> Answer:
        """Asks its own port; the status is 0 where nobody answers."""
        if self._at is None:
            found = [event["http"] for event in self.events() if event["event"] == "metrics.serving"]
            self._at = found[-1] if found else None
        return Answer(0, "") if self._at is None else await ask(f"{self._at}{path}")

    async def metrics(self) -> Metrics:
        """Returns the samples of its projection by name, those by reason as ``name{reason}``; nothing where it cannot
        be asked."""
        said = await self.ask("/metrics")
        return samples_of(said.text, self.projection) if said.status == 200 else {}

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Returns the lines of its log with this event."""
        return [one for one in self.events() if one["event"] == event]

    def tail(self, lines: int = 3) -> str:
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def samples_of(page: str, projection: str) -> Metrics:
    """Returns the samples of the outbox that a page of metrics has of a projection."""
    found: Metrics = {}
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or not sample["name"].startswith("outbox_"):
            continue
        labels = dict(_LABEL.findall(sample["labels"]))
        if labels.get("projection") == projection:
            name = sample["name"] + (f"{{{labels['reason']}}}" if "reason" in labels else "")
            found[name] = float(sample["value"])
    return found


def usual_port() -> int:
    """Returns the usual port of labs if it is free, else 0."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT
