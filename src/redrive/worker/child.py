"""One worker process of a supervisor, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from typing import TYPE_CHECKING

from redrive.worker.relief import CLAIMING, DRAIN, SPENT

if TYPE_CHECKING:
    from redrive.worker.hand_over import Pipe

# Set for the children: the descriptor on which they say how they are. Their standard input is a pipe that ends when
# this process does, however it dies.
SUPERVISED_VARIABLE = "REDRIVE_SUPERVISED"


class Child:
    """A worker process by the name of its worker. ``ended`` has its exit code when it is over."""

    def __init__(self, name: str, generation: int, process: asyncio.subprocess.Process, told: int) -> None:
        self.name = name
        self.generation = generation
        self.process = process
        self.claiming = asyncio.Event()
        self.spent = asyncio.Event()
        self.why = ""
        self.pipe: Pipe | None = None
        self.seen_off: asyncio.Task[int] | None = None
        self._listening = asyncio.create_task(self._listen(os.fdopen(told, "rb", buffering=0)), name="redrive-child")
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

    async def _listen(self, told: FileIO) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), told
        )
        try:
            while line := await reader.readline():
                self._hear(line.decode(errors="replace").strip())
        finally:
            transport.close()

    def _hear(self, said: str) -> None:
        what, _, why = said.partition(" ")
        if what == CLAIMING:
            self.claiming.set()
        elif what == SPENT:
            self.why = why
            self.spent.set()


async def start_child(command: Sequence[str], name: str, generation: int, pipe: Pipe | None) -> Child:
    """Starts a worker process. ``pipe``: through which it tells what it counts."""
    told, tells = os.pipe()
    given: Mapping[str, str] = {} if pipe is None else pipe.environment
    try:
        # A session of its own: Ctrl-C in a terminal reaches the supervisor only, and comes from it once.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(tells, *(() if pipe is None else pipe.passed)),
            env={**os.environ, SUPERVISED_VARIABLE: str(tells), **given},
        )
    except BaseException:
        os.close(told)
        raise
    finally:
        os.close(tells)
    if pipe is not None:
        pipe.begin()
    return Child(name, generation, process, told)
