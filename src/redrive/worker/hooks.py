"""Tells an application's hooks what became of tasks: apart from the worker, and never at its expense.

They run in a thread with an event loop of its own, plain functions in further threads; a hook that raises, hangs or
blocks holds up other hooks at most. Events wait in a queue of limited length; what does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redrive.handlers.events import Hook, TaskEvent
from redrive.handlers.functions import name_of
from redrive.worker.threads import NoRoom, ThreadPool

logger = logging.getLogger("redrive.hooks")
Public = Callable[[str, str | None], Any]
MOST_WAITING = 1000
AT_ONCE = 8
TELL_EVERY_S = 60.0
LAST_WORDS_S = 5.0


class Hooks:
    """The hooks of one worker. ``limit``: seconds that each may take; ``public``: what of a payload all may see."""

    def __init__(self, hooks: Mapping[str, Sequence[Hook]], limit: float, public: Public) -> None:
        self.public = public
        self._hooks = {name: tuple(listed) for name, listed in hooks.items() if listed}
        self._limit = limit
        self._waiting: deque[TaskEvent] = deque()
        self._threads = ThreadPool()
        self._in_threads = threading.Semaphore(AT_ONCE)  # also those that were given up and run on
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = asyncio.Event()
        self._closing = False
        self._told: dict[str, float] = {}
        self.dropped = 0
        self.raised = 0

    def wanted(self, name: str) -> bool:
        """Returns whether anybody listens to this event."""
        return name in self._hooks

    def post(self, event: TaskEvent) -> None:
        """Hands an event over, from the worker's loop; costs an append."""
        if len(self._waiting) >= MOST_WAITING:
            self._drop(f"more than {MOST_WAITING:,} events wait for hooks that take their time")
            return
        self._waiting.append(event)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="redrive-hooks", daemon=True)
            try:
                self._thread.start()
            except (RuntimeError, MemoryError) as error:
                self._thread = None
                self._waiting.clear()
                self._drop(f"no thread can be started ({error})")
        elif self._loop is not None:
            self._ring(self._loop)

    async def close(self) -> None:
        """Lets hooks hear what has happened so far, for a few seconds."""
        thread = self._thread
        if thread is None:
            return
        self._closing = True
        if self._loop is not None:
            self._ring(self._loop)
        await asyncio.to_thread(thread.join, LAST_WORDS_S)
        if left := len(self._waiting):
            self.dropped += left
            self._say("stopped", "%d event(s) were not told: the hooks take too long, and the worker ends", left)

    # -- in the thread of the hooks ---------------------------------------------------------------------------------

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # its loop has ended
            loop.call_soon_threadsafe(self._bell.set)

    def _run(self) -> None:
        asyncio.run(self._serve())
        self._threads.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        slots = asyncio.Semaphore(AT_ONCE)
        calls: set[asyncio.Task[None]] = set()
        while self._waiting or not self._closing:
            self._bell.clear()
            while self._waiting:
                event = self._waiting[0]
                for hook in self._hooks[event.name]:
                    await slots.acquire()
                    call = asyncio.create_task(self._call(hook, event, slots))
                    calls.add(call)
                    call.add_done_callback(calls.discard)
                self._waiting.popleft()
            if not self._closing:
                await self._bell.wait()
        if calls:
            await asyncio.wait(calls, timeout=self._limit)

    async def _call(self, hook: Hook, event: TaskEvent, slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._limit):
                value = hook(event) if inspect.iscoroutinefunction(hook) else await self._in_thread(hook, event)
                if inspect.isawaitable(value):
                    await value
        except TimeoutError:
            self._failed(hook, event, f"took longer than {self._limit:g} s, and is no longer waited for")
        except NoRoom as error:
            self._drop(str(error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also sys.exit(): it is the hook's, and would end all of them
            self._failed(hook, event, f"raised {type(error).__name__}", error)
        finally:
            slots.release()

    async def _in_thread(self, hook: Hook, event: TaskEvent) -> Any:
        if not self._in_threads.acquire(blocking=False):
            raise NoRoom(f"{AT_ONCE} hooks hang")

        def call() -> Any:
            try:
                return hook(event)
            finally:
                self._in_threads.release()

        try:
            answer = self._threads.submit(call)
        except NoRoom:
            self._in_threads.release()
            raise
        return await answer

    # -- telling of it, once in a while -----------------------------------------------------------------------------

    def _failed(self, hook: Hook, event: TaskEvent, what: str, error: BaseException | None = None) -> None:
        self.raised += 1
        name = name_of(hook)
        self._say(name, "the hook %s of %r %s; tasks are as they are", name, event.name, what, error=error)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self._say("dropped", "events are dropped, %d so far: %s", self.dropped, why)

    def _say(self, about: str, text: str, *args: object, error: BaseException | None = None) -> None:
        now = time.monotonic()
        if now >= self._told.get(about, 0.0):
            self._told[about] = now + TELL_EVERY_S
            logger.warning(text, *args, exc_info=error, extra={"event": "hook.trouble"})
