"""The floor: our own SQL without our Python, with the same batch size. pgbench drives it, or a bare driver loop where
pgbench is missing. Only ids travel back to pgbench, while a worker gets whole tasks: the floor is a bit flattered."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from typing import Any

import asyncpg
from tests.cluster import find_binaries

from bench import fixtures
from bench.measure import Bench
from bench.peers import Peer
from bench.workers import Failed
from redrive.stores.sql import statements

FASTEST = 100_000  # tasks per second that the fixture must last for; only as many as this size of call can do


async def measure(bench: Bench, adapter: type[Peer], statement: str, batch: int, clients: int) -> dict[str, Any]:
    seconds = bench.plan.floor_seconds
    bench.say(f"floor {statement}, {batch} a call, {clients} client{'s' if clients > 1 else ''}")
    async with bench.queue(adapter) as peer:
        if statement == "cycle":
            await fixtures.make(peer, "waiting", FASTEST * seconds * min(batch + 50, 1000) // 1000)
        drive = _pgbench if pgbench() else _bare_driver
        calls = await drive(peer.url, statement, batch, clients, seconds)
        done = calls * batch
        if statement == "cycle":
            done = await _completed(peer.url)
            if not await peer.left():
                raise Failed("the floor emptied its queue; FASTEST is too small for this machine")
    return {"per_s": done / seconds, "batch": batch, "clients": clients, "by": "pgbench" if pgbench() else "asyncpg"}


def pgbench() -> str | None:
    beside = find_binaries() / "pgbench"
    return str(beside) if beside.exists() else shutil.which("pgbench")


async def _pgbench(url: str, statement: str, batch: int, clients: int, seconds: int) -> int:
    text = statements("bench.fixtures", "floor.sql")[statement].replace("\n", " ")
    ending = " \\gset\n" if statement == "cycle" else ";\n"
    command = [
        pgbench() or "",
        "--no-vacuum",
        "--protocol=prepared",
        f"--client={clients}",
        f"--jobs={clients}",
        f"--time={seconds}",
        f"--define=batch={batch}",
        "--define=pos=0",
        "--define=ids={}",
        "--file=/dev/stdin",
        url,
    ]
    done = await asyncio.to_thread(
        subprocess.run, command, input=text + ending, capture_output=True, text=True, check=False
    )
    found = re.search(r"actually processed: (\d+)", done.stdout)
    if done.returncode != 0 or found is None:
        raise Failed(f"pgbench: {(done.stderr or done.stdout).strip()[-300:]}")
    return int(found[1])


async def _bare_driver(url: str, statement: str, batch: int, clients: int, seconds: int) -> int:
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(_client(url, statement, batch, n, until) for n in range(clients))))


async def _client(url: str, statement: str, batch: int, number: int, until: float) -> int:
    names = ("ids", "pos", "batch", "client_id")
    text = statements("bench.fixtures", "floor.sql")[statement]
    used = [name for name in names if f":{name}" in text]
    for place, name in enumerate(used, 1):
        text = re.sub(rf"(?<!:):{name}\b", f"${place}", text)
    values: dict[str, Any] = {"ids": [], "pos": 0, "batch": batch, "client_id": str(number)}
    connection = await asyncpg.connect(url)
    calls = 0
    try:
        prepared = await connection.prepare(text)
        while time.monotonic() < until:
            row = await prepared.fetchrow(*(values[name] for name in used))
            calls += 1
            if statement == "cycle":
                values |= {"ids": row["ids"].strip("{}").split(",") if row["ids"] != "{}" else [], "pos": row["pos"]}
    finally:
        await connection.close()
    return calls


async def _completed(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("select count(*) from redrive.history"))
    finally:
        await connection.close()
