"""Outbox: how fast events get from PostgreSQL into full text and to an HTTP receiver, as a share of what a plain bulk
kind does; whether a long backlog changes that; and how many events a worker has in its memory at most.

In turn (A B C A B C …), since a machine's mood changes; the ratios are those of the medians.
"""

from __future__ import annotations

import contextlib
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import fixtures
from bench.measure import Bench, drain
from bench.peers import Peer
from bench.peers.redrive_outbox import Adapter
from bench.workers import ROOT

BULK, FTS5, HTTP = "bulk", "fts5", "http"


async def measure(bench: Bench) -> dict[str, Any]:
    rounds, events, backlog = bench.plan.outbox
    cases = [(BULK, None), (FTS5, None), (FTS5, backlog), (HTTP, None), (HTTP, backlog)]
    runs: dict[tuple[str, int | None], list[dict[str, Any]]] = {case: [] for case in cases}
    with _receiver() as receiver:
        for nth in range(rounds):
            for name, waiting in cases if nth % 2 == 0 else reversed(cases):
                bench.say(f"outbox, {events:,} events{'' if waiting is None else f' of {waiting:,}'}, {name}")
                runs[name, waiting].append(await _run(bench, name, receiver, events, waiting))
    found = {name: _summary(runs[name, None]) for name in (BULK, FTS5, HTTP)}
    behind = {name: _summary(runs[name, backlog]) for name in (FTS5, HTTP)}
    return {
        "events": events,
        "backlog": backlog,
        **found,
        "shares": {name: found[name]["per_s"] / found[BULK]["per_s"] for name in (FTS5, HTTP)},
        "behind": behind,
        "flat": {name: behind[name]["per_s"] / found[name]["per_s"] for name in (FTS5, HTTP)},
        "most_events": max(run["most"] for (name, _), each in runs.items() if name != BULK for run in each),
    }


async def _run(bench: Bench, name: str, receiver: str, events: int, backlog: int | None = None) -> dict[str, Any]:
    with _files(bench.servers.directory) as (search, most):
        sink = {BULK: None, FTS5: f"fts5:///{search}", HTTP: receiver}[name]

        async def wait_in_line(peer: Peer) -> None:
            await fixtures.make(peer, "events", backlog or 0)

        held: dict[str, Any] = {} if backlog is None else {"places": backlog, "background": wait_in_line}
        done = await drain.measure(bench, Adapter, 1, min(events, backlog or events), sink=sink, most=most, **held)
        return {**done, "most": struct.unpack("q", most.read_bytes())[0]}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    figures = ("per_s", "worker_us_per_task", "server_us_per_task", "rss_mb", "most")
    return {name: statistics.median(run[name] for run in runs) for name in figures} | {
        "runs": [r["per_s"] for r in runs]
    }


@contextlib.contextmanager
def _files(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yields where the full text and the greatest number of events go; both are gone afterwards."""
    search, most = directory / "outbox-search.db", directory / "outbox-most"
    most.write_bytes(bytes(8))
    try:
        yield search, most
    finally:
        for file in (most, *directory.glob(f"{search.name}*")):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    """Yields the address of a receiver, which is a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.receiver"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/events"
    finally:
        process.kill()
        process.wait()
