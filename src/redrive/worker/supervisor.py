"""Runs ``--processes N``: worker processes side by side, started again when they crash."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

from redrive.worker.hand_over import HandOver, Pipe

logger = logging.getLogger("redrive.supervisor")

FIRST_RESTART_DELAY_S = 0.5
LONGEST_RESTART_DELAY_S = 30.0
STABLE_AFTER_S = 60.0
# Set for the children. Their standard input is a pipe that ends when this process does, however it dies.
SUPERVISED_VARIABLE = "REDRIVE_SUPERVISED"
# A child that was started wrongly says so with this code; starting it again would not cure it.
EXIT_MISUSED = 2


class Supervisor:
    """Keeps one child per command running. ``run`` ends when all children have: by themselves, or after ``stop``.
    ``hand_over``: through which children tell what they have counted. ``on_crash`` is told which one has crashed, by
    its number from 0 on and its process id, before it is started again."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        hand_over: HandOver | None = None,
        on_crash: Callable[[int, int], Awaitable[None]] | None = None,
    ) -> None:
        self._commands = commands
        self._hand_over = hand_over
        self._on_crash = on_crash
        self._children: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()
        self.restarts = 0

    async def run(self) -> list[int]:
        """Returns the last exit code of each child; a child that ended because it was told to counts as 0."""
        return list(await asyncio.gather(*(self._keep(number) for number in range(len(self._commands)))))

    def stop(self) -> None:
        """Passes the request on: children finish what they run within their grace period."""
        self._stopping.set()
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, number: int) -> int:
        delay = FIRST_RESTART_DELAY_S
        while True:
            started = time.monotonic()
            code = await self._run_once(number)
            if self._stopping.is_set() or code == 0:
                return max(code, 0)
            if code == EXIT_MISUSED:
                return code
            delay = FIRST_RESTART_DELAY_S if time.monotonic() - started > STABLE_AFTER_S else delay
            logger.error(
                "a worker process %s; starting it again in %.1f s",
                _ended(code),
                delay,
                extra={"event": "worker.crashed", "exit_code": code},
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
                    return 0
            delay = min(delay * 2, LONGEST_RESTART_DELAY_S)
            self.restarts += 1

    async def _run_once(self, number: int) -> int:
        if self._hand_over is None:
            return await self._run_child(number)
        pipe, code = self._hand_over.pipe(number), -1
        try:
            code = await self._run_child(number, pipe)
            return code
        finally:
            await pipe.end(for_good=code == 0)

    async def _run_child(self, number: int, pipe: Pipe | None = None) -> int:
        # A session of its own: Ctrl-C in a terminal reaches the supervisor only, and comes from it once.
        child = await asyncio.create_subprocess_exec(
            *self._commands[number],
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if pipe is None else pipe.passed,
            env={**os.environ, SUPERVISED_VARIABLE: "1", **({} if pipe is None else pipe.environment)},
        )
        if pipe is not None:
            pipe.begin()
        self._children.add(child)
        if self._stopping.is_set():
            child.terminate()
        try:
            code = await child.wait()
        finally:
            self._children.discard(child)
        if code not in (0, EXIT_MISUSED) and self._on_crash is not None:
            await self._on_crash(number, child.pid)
        return code


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
