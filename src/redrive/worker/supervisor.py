"""Runs ``--processes N``: workers side by side, started again when they crash, replaced when they are spent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import FileIO
from typing import TYPE_CHECKING

from redrive.worker.hand_over import HandOver
from redrive.worker.recycling import CLAIMING, DRAIN, SPENT

if TYPE_CHECKING:
    from redrive.worker.hand_over import Pipe

logger = logging.getLogger("redrive.supervisor")

# Set for the children: the descriptor on which they say how they are. Their standard input is a pipe that ends when
# this process does, however it dies.
SUPERVISED_VARIABLE = "REDRIVE_SUPERVISED"


class Child:
    """A worker process by the name of its worker. ``ended`` has its exit code when it is over."""

    def __init__(self, name: str, generation: int, process: asyncio.subprocess.Process, read_end: int) -> None:
        self.name = name
        self.generation = generation
        self.process = process
        self.claiming = asyncio.Event()
        self.spent = asyncio.Event()
        self.why = ""
        self.pipe: Pipe | None = None
        self.seen_off: asyncio.Task[int] | None = None
        self._listening = asyncio.create_task(
            self._listen(os.fdopen(read_end, "rb", buffering=0)), name="redrive-child"
        )
        self.ended = asyncio.create_task(self._wait(), name="redrive-child-end")

    def drain(self) -> None:
        """Has it claim no more, and end when all has ended that it runs."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended by itself
            self.process.stdin.write(DRAIN)

    def signal(self, number: int) -> None:
        """Sends a signal, if it still runs. Not by ``Process.send_signal``, which looks first whether it has ended: if
        it just has, that takes the exit code from whoever waits for it, who then reports 255."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def _wait(self) -> int:
        code = await self.process.wait()
        self._listening.cancel()
        return code

    async def _listen(self, pipe: FileIO) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await reader.readline():
                self._hear(line.decode(errors="replace").strip())
        finally:
            transport.close()

    def _hear(self, line: str) -> None:
        what, _, why = line.partition(" ")
        if what == CLAIMING:
            self.claiming.set()
        elif what == SPENT:
            self.why = why
            self.spent.set()


async def start_child(command: Sequence[str], name: str, generation: int, pipe: Pipe | None) -> Child:
    """Starts a worker process. ``pipe``: through which it write_end what it counts."""
    read_end, write_end = os.pipe()
    given: Mapping[str, str] = {} if pipe is None else pipe.environment
    try:
        # A session of its own: Ctrl-C in a terminal reaches the supervisor only, and comes from it once.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(write_end, *(() if pipe is None else pipe.passed)),
            env={**os.environ, SUPERVISED_VARIABLE: str(write_end), **given},
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    if pipe is not None:
        pipe.begin()
    return Child(name, generation, process, read_end)


__all__ = ["SUPERVISED_VARIABLE", "Supervisor"]

FIRST_RESTART_DELAY_S = 0.5
LONGEST_RESTART_DELAY_S = 30.0
STABLE_AFTER_S = 60.0
# A child that was started wrongly says so with this code; starting it again would not cure it.
EXIT_MISUSED = 2


class Supervisor:
    """Keeps a child for each name running. ``run`` ends when all children have: by themselves, or after ``stop``.

    ``command`` returns the command line of the child of a name. ``hand_over``: through which children tell what they
    have counted. ``on_crash`` is told the name and the process id of one that has crashed, before it is started again.
    A child that has had enough says so and goes on; its successor, under a name of its own, is started first, one at a
    time, and when that claims tasks the old one is told to claim no more.
    """

    def __init__(
        self,
        names: Sequence[str],
        command: Callable[[str], Sequence[str]],
        hand_over: HandOver | None = None,
        on_crash: Callable[[str, int], Awaitable[None]] | None = None,
    ) -> None:
        self._names = names
        self._command = command
        self._hand_over = hand_over
        self._on_crash = on_crash
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._turn = asyncio.Lock()
        self.restarts = 0
        self.relieved = 0
        self._ends: set[asyncio.Task[int]] = set()

    async def run(self) -> list[int]:
        """Returns the last exit code of each child; a child that ended because it was told to counts as 0."""
        codes = await asyncio.gather(*(self._keep(number) for number in range(len(self._names))))
        if self._ends:  # relieved ones that still finish what they run
            await asyncio.wait(self._ends)
        return list(codes)

    def stop(self) -> None:
        """Passes the request on: children finish what they run within their grace period."""
        self._stopping.set()
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        for child in self._children:
            child.signal(number)

    async def _keep(self, number: int) -> int:
        delay, generation, first = FIRST_RESTART_DELAY_S, 1, True
        while True:
            started = time.monotonic()
            end, generation = await self._run_on(number, await self._start(number, generation))
            code = await end
            if self._stopping.is_set() or code == 0:
                return max(code, 0)
            # One that could never have begun; where others of its place did, what is wrong now may be put right.
            if code == EXIT_MISUSED and first:
                return code
            first = False
            delay = FIRST_RESTART_DELAY_S if time.monotonic() - started > STABLE_AFTER_S else delay
            logger.error(
                "a worker process %s; starting it again in %.1f s",
                _ended(code),
                delay,
                extra={"event": "worker.crashed", "exit_code": code},
            )
            if await self._stops_within(delay):
                return 0
            delay = min(delay * 2, LONGEST_RESTART_DELAY_S)
            self.restarts += 1

    async def _run_on(self, number: int, child: Child, /) -> tuple[asyncio.Task[int], int]:
        """Returns the end of a child, or of the last of those that relieved each other, and its generation."""
        while True:
            await _first(child.ended, child.spent.wait(), self._stopping.wait())
            if child.ended.done() or self._stopping.is_set():
                return self._end_of(child), child.generation
            child = await self._relieve(number, child)

    async def _relieve(self, number: int, old: Child) -> Child:
        """Starts a successor, and lets the old one go as soon as it claims; the old one stays while none can be had."""
        delay = FIRST_RESTART_DELAY_S
        async with self._turn:
            while not old.ended.done() and not self._stopping.is_set():
                new = await self._start(number, old.generation + 1, relieves=True)
                await _first(new.claiming.wait(), new.ended, old.ended, self._stopping.wait())
                if not new.ended.done() or self._stopping.is_set():
                    self._let_go(old, new)
                    return new
                logger.error(
                    "the successor of %s %s; it stays, and another is started in %.1f s",
                    old.name,
                    _ended(await self._end_of(new)),
                    delay,
                    extra={"event": "worker.crashed", "exit_code": new.ended.result()},
                )
                await self._stops_within(delay, old)
                delay = min(delay * 2, LONGEST_RESTART_DELAY_S)
        return old

    def _let_go(self, old: Child, new: Child) -> None:
        if new.claiming.is_set():
            self.relieved += 1
            logger.info(
                "%s relieves %s: %s", new.name, old.name, old.why, extra={"event": "worker.relieved", "by": new.name}
            )
            old.drain()
        self._end_of(old)

    async def _start(self, number: int, generation: int, *, relieves: bool = False) -> Child:
        name = self._names[number] if generation == 1 else f"{self._names[number]}.{generation}"
        pipe = None if self._hand_over is None else self._hand_over.pipe(number, relieves=relieves)
        try:
            child = await start_child(self._command(name), name, generation, pipe)
        except BaseException:
            if pipe is not None:
                await pipe.end()
            raise
        self._children.add(child)
        child.pipe = pipe
        if self._stopping.is_set():
            child.signal(signal.SIGTERM)
        return child

    def _end_of(self, child: Child) -> asyncio.Task[int]:
        """Returns the task that waits for a child's end and does what is to be done then; the same one each time."""
        if child.seen_off is None:
            child.seen_off = asyncio.create_task(self._see_off(child), name="redrive-child-gone")
            self._ends.add(child.seen_off)
            child.seen_off.add_done_callback(self._ends.discard)
        return child.seen_off

    async def _see_off(self, child: Child) -> int:
        code = await child.ended
        self._children.discard(child)
        if child.pipe is not None:
            await child.pipe.end(for_good=code == 0)
        if code not in (0, EXIT_MISUSED) and self._on_crash is not None:
            await self._on_crash(child.name, child.process.pid)
        return code

    async def _stops_within(self, seconds: float, child: Child | None = None) -> bool:
        """Waits so long, or until all is to stop, or a child has ended; returns whether all is to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _first(self._stopping.wait(), *([] if child is None else [child.ended]))
        return self._stopping.is_set()


async def _first(*awaited: Awaitable[object]) -> None:
    """Waits for the first of these; tasks go on, what else was waited for does not."""
    own = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(own, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one, given in zip(own, awaited, strict=True):
            if one is not given:
                one.cancel()


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
