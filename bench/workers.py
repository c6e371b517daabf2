"""Worker processes of a peer: started, warmed up, stopped at a gate while the queue is filled, and let go together.

Filling first and starting then would measure imports, and with two processes the first would be done before the second
is up. So the workers start on the empty queue and handle a few warm-up tasks; then SIGSTOP, fill, SIGCONT.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.ledger import LEDGER, SLOT, Ledger
from bench.peers import Peer

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 200  # places at the start of the ledger, kept for warm-up tasks
READY_WITHIN = 20.0
ENOUGH_AFTER = 10.0


class Failed(Exception):
    """A measurement that did not work out; its message is the reason in the report."""


@dataclass
class Usage:
    cpu_s: float = 0.0
    rss_mb: float = 0.0  # of the worker process with the most, its children included


class Workers:
    def __init__(self, peer: Peer, ledger: Ledger, count: int, directory: Path) -> None:
        self.peer = peer
        self.ledger = ledger
        self._log = directory / f"worker-{time.monotonic_ns()}.log"
        self._started = [self._start(slot) for slot in range(count)]
        self._peak = 0.0

    def _start(self, slot: int) -> psutil.Popen:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("REDRIVE_", "TASK_WORKER_", "PG"))}
        chosen = {LEDGER: str(self.ledger.path), SLOT: str(slot), "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            return psutil.Popen(
                self.peer.command(),
                cwd=ROOT,
                env=inherited | chosen | self.peer.environment(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Feed warm-up tasks one at a time until each worker has handled one. Some queues keep giving all of them to
        the same worker: then the others are as ready as they will be after a while."""
        started = time.monotonic()
        for n in range(WARM_UP):
            await self.peer.enqueue(n)
            for _ in range(10):
                self.insist_alive()
                shares = self.ledger.shares(len(self._started))
                if all(shares) or (any(shares) and time.monotonic() - started > ENOUGH_AFTER):
                    await self._settle_down(n)
                    return
                await asyncio.sleep(READY_WITHIN / WARM_UP / 10)
            if time.monotonic() - started > READY_WITHIN:
                break
        raise Failed(f"the workers were not ready within {READY_WITHIN:g} s: {self.last_words()}")

    async def _settle_down(self, last: int) -> None:
        """Until the warm-up tasks are handled and, by guess, acknowledged."""
        for _ in range(250):
            if all(self.ledger.at(n) for n in range(last + 1)):
                break
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)

    def insist_alive(self) -> None:
        for process in self._started:
            if process.poll() is not None:
                raise Failed(f"a worker ended with {process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-300:] if lines else "it said nothing"

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Stopped inside, running again after."""
        self._signal(signal.SIGSTOP)
        try:
            await self._until_stopped()
            yield
        finally:
            self._signal(signal.SIGCONT)

    async def _until_stopped(self) -> None:
        for _ in range(100):
            if all(one.status() == psutil.STATUS_STOPPED for process in self._started for one in _tree(process)):
                return
            await asyncio.sleep(0.01)
        raise Failed("the workers could not be stopped at the gate")

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def usage(self) -> Usage:
        """CPU time so far of all workers, and the highest memory seen at any call."""
        cpu = 0.0
        for process in self._started:
            memory = 0.0
            for one in _tree(process):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    cpu += times.user + times.system
                    memory += one.memory_info().rss / 1e6
            self._peak = max(self._peak, memory)
        return Usage(cpu, self._peak)

    async def stop(self) -> None:
        self._signal(signal.SIGCONT)
        for process in self._started:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        for _ in range(40):
            if all(process.poll() is not None for process in self._started):
                break
            await asyncio.sleep(0.05)
        self._signal(signal.SIGKILL)  # the whole group: children that outlived their parent too
        for process in self._started:
            process.wait()
        self._log.unlink(missing_ok=True)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


@contextlib.asynccontextmanager
async def workers(peer: Peer, ledger: Ledger, count: int, directory: Path) -> AsyncIterator[Workers]:
    """Ready to work inside; gone after."""
    started = Workers(peer, ledger, count, directory)
    try:
        await started.ready()
        yield started
    finally:
        await started.stop()
