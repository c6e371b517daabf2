"""The worker: one process's slots, filled from the store and settled back into it.

Four coroutines share one ``Worker``: the hot loop (settle and claim), the lease keeper (heartbeats, deadlines), the
beat (liveness, promotion, duties) and one per running attempt. None of them decides about states: outcomes go
through ``machine.settle`` and come back from the store as landed or lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from redrive.errors import LeaseLost, RedriveError, StoreUnavailable, StoreUnusable
from redrive.handlers.context import Context
from redrive.handlers.registry import Handler, Registry
from redrive.kernel.commit import Schedule
from redrive.kernel.machine import Held, Policy, Transition, settle
from redrive.kernel.outcome import Completed, Fail, Outcome
from redrive.kernel.store import Cycle, Store, Wake, Want
from redrive.kernel.task import Claimed
from redrive.observe.health import Health
from redrive.observe.logs import TaskLog
from redrive.settings import Options, Settings
from redrive.worker.beat import Beater
from redrive.worker.lease import STOP_GRACE, LeaseKeeper
from redrive.worker.outage import Outage
from redrive.worker.prepare import prepare
from redrive.worker.processes import ProcessPool
from redrive.worker.report import Report
from redrive.worker.run import Run, Runner, outcome_of, stopped, unforeseen
from redrive.worker.threads import ThreadPool

SETTLE_BATCH = 2000
LAST_SETTLE_PATIENCE = 15.0
HAND_BACK_PATIENCE = 5.0
ASK_AGAIN_AFTER = 1.05


class Worker:
    """Runs tasks of the given queues until told to stop."""

    def __init__(
        self, store: Store, registry: Registry, settings: Settings, options: Options, *,
        log: TaskLog | None = None, schedules: Sequence[Schedule] = (), owner: str = "default",
        rng: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.store = store
        self.registry = registry
        self.settings = settings
        self.options = options
        self.id = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.health = Health(worker_id=self.id)
        self.report = Report(log or TaskLog(style="off"), self.health)
        self.report.log.name(self.id)
        self.schedules = tuple(schedules)
        self.owner = owner
        self.runs: dict[UUID, Run] = {}
        # Completed by their own transaction, with a handler that has not ended yet.
        self.trailing: dict[UUID, Run] = {}
        self.stopping = False
        self._stopped_at = 0.0
        self.outage = Outage(self.id, self.health)
        self._rng = rng
        self._outbox: list[tuple[Run, Transition]] = []
        self._slots = options.concurrency
        self._look = True
        self._empty = False
        self._claimed = 0
        self._strays: list[asyncio.Future[Any]] = []
        # The call that was under way when this coroutine was cancelled, with what it settles.
        self._cut_off: tuple[asyncio.Task[Cycle], list[tuple[Run, Transition]], Want | None, float] | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPool()
        self._processes = ProcessPool(self.note_progress)
        self._runner = Runner(self._threads, self._processes, self.id, self._process_began)
        self._leases = LeaseKeeper(self)
        self._beats = Beater(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until stopped or until an option says that it is enough. Everything claimed is settled at the end."""
        self._loop = asyncio.get_running_loop()
        self.health.started_at = time.time()
        helpers: list[asyncio.Task[None]] = []
        try:
            await prepare(self)
            self.store.listen(self.on_wake)
            helpers = [
                asyncio.create_task(self._leases.run(), name="redrive-leases"),
                asyncio.create_task(self._beats.run(), name="redrive-beat"),
            ]
            await self._work()
        except asyncio.CancelledError:
            await self._hand_back()
            raise
        finally:
            await _end(helpers)
            self._retire()
            with contextlib.suppress(RedriveError):
                await self._beats.leave()
            self._disown_strays()
            self._threads.close()
            self._processes.close()
            self.report.flush()

    def stop(self) -> None:
        """Claim no more; let what runs finish within the grace period, then hand it back."""
        self._leases.begin_grace()
        self._retire()

    def _retire(self) -> None:
        """Claim no more, and end when everything that runs has ended by itself."""
        if not self.stopping:
            self._stopped_at = time.monotonic()
        self.stopping = True
        self.health.stopping = True
        self._wake.set()

    async def _hand_back(self) -> None:
        """This coroutine is being cancelled: stop everything now and give it back, as far as the store answers."""
        self._retire()
        runs = [*self.runs.values(), *self.trailing.values()]
        for run in runs:
            run.ask_to_stop("shutdown")
        futures = {run.future for run in runs if run.future is not None and not run.future.done()}
        if futures:
            await asyncio.wait(futures, timeout=STOP_GRACE)
        for run in runs:
            if run.future is None and not run.settled:  # claimed, and not begun
                self.finish(run, stopped(run))
            elif run.trailing or not run.settled:
                self.abandon(run)
        # A claim that nobody heard the answer of: the store gives such tasks back when it is asked the next time, and
        # perhaps the time after that, because the server may still be at it.
        asks = 1 if self.outage.seconds else 0
        if not await self._recover_cut_off():
            asks = 2
        ends = time.monotonic() + HAND_BACK_PATIENCE
        while self._outbox or asks:
            batch, self._outbox = self._outbox, []
            try:
                async with asyncio.timeout(max(ends - time.monotonic(), 0.1)):
                    cycle = await self.store.cycle([t for _, t in batch], None, again=_again(batch))
            except (StoreUnavailable, StoreUnusable, TimeoutError):
                self._keep(batch)
            except RedriveError as error:
                await self._settle_singly(batch, error)
            else:
                self._landed(batch, cycle.lost)
                asks = max(asks - 1, 0)
            if time.monotonic() >= ends:
                break
            if self._outbox or asks:
                await asyncio.sleep(0.25 if self._outbox else ASK_AGAIN_AFTER)
        if self._outbox:
            self.outage.give_up(len(self._outbox))

    async def _recover_cut_off(self) -> bool:
        """The call that was under way may have settled and claimed: see it to its end. False when a claim has none."""
        if self._cut_off is None:
            return True
        (call, batch, want, asked), self._cut_off = self._cut_off, None
        await asyncio.wait([call], timeout=HAND_BACK_PATIENCE)
        if not call.done():
            await _end([call])
        if call.cancelled() or call.exception() is not None:
            self._keep(batch)
            return want is None
        cycle = call.result()
        self._landed(batch, cycle.lost)
        for task in cycle.claimed:
            run = self._hold(task, asked)
            run.stop = "shutdown"
            self.finish(run, stopped(run))
        return True

    async def _cycle(self, batch: list[tuple[Run, Transition]], want: Want | None) -> Cycle:
        """One call of the store. A cancellation of this coroutine does not cut it off: ``_hand_back`` sees to it."""
        asked = time.monotonic()
        settlements = [t for _, t in batch]
        call = asyncio.get_running_loop().create_task(self.store.cycle(settlements, want, again=_again(batch)))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._cut_off = (call, batch, want, asked)
            raise

    def _disown_strays(self) -> None:
        """``asyncio.run`` waits for every task at its end: one that swallows its cancellation would keep the process
        alive for good. It was fenced off and reported; nobody waits for it."""
        for stray in self._strays:
            if isinstance(stray, asyncio.Task) and not stray.done():
                asyncio._unregister_task(stray)
                stray._log_destroy_pending = False  # type: ignore[attr-defined]

    def look(self) -> None:
        """There may be something to claim."""
        self._look = True
        self._wake.set()

    def on_wake(self, wake: Wake) -> None:
        """A hint from the store. Wrong hints cost a look, missing ones a poll interval."""
        if wake.due_in is not None:
            self._beats.due_in(wake.due_in)
        elif wake.cancel:
            self._beats.due_in(0)
        elif wake.queue is None or wake.queue == "*" or wake.queue in self.options.queues:
            self.look()

    # -- the hot loop ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        ends = time.monotonic() + (self.options.max_time or float("inf"))
        while not await self._finished():
            await self._wait(ends)
            if time.monotonic() >= ends:
                self._retire()
            want = self._want()
            batch, asked = self._take_outbox(), time.monotonic()
            if not batch and want is None:
                continue
            try:
                cycle = await self._cycle(batch, want)
            except (StoreUnavailable, StoreUnusable) as error:
                self._keep(batch)
                if await self._rode_out(error):
                    continue
                return
            except RedriveError as error:
                await self._settle_singly(batch, error)
                continue
            self.outage.over()
            self.report.begin()
            self._landed(batch, cycle.lost)
            if want is not None:
                self._look = cycle.more or len(cycle.claimed) >= want.count
                self._empty = not cycle.claimed and not cycle.more
                await self._start(cycle.claimed, asked)
            self.report.flush()

    async def _finished(self) -> bool:
        if self.runs or self._outbox or self.trailing:
            return False
        if self.options.stop_when_empty and self._empty and not self.stopping:
            # Empty means: also nothing that is due but not yet promoted, recovered or fired.
            self._empty = False
            return not await self._beats.beat_now()
        return self.stopping

    async def _wait(self, ends: float) -> None:
        """Until there is something to settle, room and reason to look, or the poll interval has passed."""
        if self._outbox or (self._look and self._slots > 0 and not self.stopping):
            self._wake.clear()
            return
        try:
            left = ends - time.monotonic() if not self.stopping else self.options.sleep
            async with asyncio.timeout(min(self.options.sleep, max(left, 0))):
                await self._wake.wait()
        except TimeoutError:
            self._look = True
        self._wake.clear()

    def _take_outbox(self) -> list[tuple[Run, Transition]]:
        batch, self._outbox = self._outbox[:SETTLE_BATCH], self._outbox[SETTLE_BATCH:]
        return batch

    def _want(self) -> Want | None:
        if self.stopping or self._slots <= 0:
            return None
        count = self._slots
        limit = 1 if self.options.once else self.options.max_jobs
        if limit is not None:
            count = min(count, limit - self._claimed)
            if count <= 0:
                self._retire()
                return None
        handles = tuple(self.registry.handlers) if self.settings.unknown_kind == "leave" else None
        return Want(self.id, self.options.queues, count, self.settings.lease, handles)

    async def _start(self, tasks: list[Claimed], asked: float) -> None:
        self._claimed += len(tasks)
        if self.options.once and not tasks:
            self._retire()
        groups: dict[str, list[Run]] = {}
        for task in tasks:
            run = self._hold(task, asked)
            if run.handler is not None and run.handler.bulk:
                groups.setdefault(task.kind, []).append(run)
            else:
                run.future = self._launch(self._attempt(run), [run])
        for runs in groups.values():
            await self._start_bulk(runs)

    async def _start_bulk(self, runs: list[Run]) -> None:
        """One slot, one call: fill it up to the handler's size with more of the same kind."""
        handler = runs[0].handler
        assert handler is not None and handler.bulk is not None
        missing = -len(runs) % handler.bulk
        if missing and not self.options.once:
            want = Want(self.id, self.options.queues, missing, self.settings.lease, only=handler.kind)
            with contextlib.suppress(StoreUnavailable, StoreUnusable):
                asked = time.monotonic()
                more = await self._cycle([], want)
                self._claimed += len(more.claimed)
                runs += [self._hold(task, asked, slot=False) for task in more.claimed]
        chunks = [runs[i : i + handler.bulk] for i in range(0, len(runs), handler.bulk)]
        # The claim took a slot for each task; a call needs only one.
        self._slots += sum(1 for run in runs if run.slot) - len(chunks)
        for chunk in chunks:
            future = self._launch(self._attempt_bulk(chunk), chunk)
            for run in chunk:
                run.slot = run is chunk[0]
                run.mates = chunk
                run.future = future

    def _hold(self, task: Claimed, asked: float, *, slot: bool = True) -> Run:
        handler = self.registry.handlers.get(task.kind)
        run = Run(task, handler, Context(task, self, self.id), self._timeout(task, handler))
        # The store counts the lease from some moment after it was asked.
        run.renewed_at = asked
        run.slot = slot
        self._slots -= slot
        self.runs[task.id] = run
        self._leases.watch(run)
        self.report.claimed(task)
        return run

    def _timeout(self, task: Claimed, handler: Handler | None) -> float | None:
        if task.timeout is not None:
            return task.timeout
        if handler is not None and handler.timeout is not None:
            return handler.timeout
        default = self.settings.timeout_ms / 1000 if self.options.timeout is None else self.options.timeout
        return default or None

    # -- attempts --------------------------------------------------------------------------------------------------

    def _launch(self, attempt: Coroutine[Any, Any, None], runs: list[Run]) -> asyncio.Task[None]:
        """Whatever becomes of the attempt, it ends in ``finish``: also when it is cancelled before its first step."""
        task = asyncio.create_task(attempt)
        task.add_done_callback(lambda done: self._ended(done, runs))
        return task

    def _ended(self, attempt: asyncio.Task[None], runs: list[Run]) -> None:
        error = None if attempt.cancelled() else attempt.exception()
        for run in runs:
            if not run.settled:
                self.finish(run, unforeseen(run, error) if run.stop is None else stopped(run))

    async def _attempt(self, run: Run) -> None:
        try:
            outcome = await self._runner.run(run)
        except BaseException as error:
            outcome = unforeseen(run, error) if run.stop is None else stopped(run)
        self.finish(run, outcome)

    async def _attempt_bulk(self, runs: list[Run]) -> None:
        try:
            outcomes = await self._runner.run_bulk(runs)
        except BaseException as error:
            outcomes = [unforeseen(run, error) if run.stop is None else stopped(run) for run in runs]
        for run, outcome in zip(runs, outcomes, strict=True):
            self.finish(run, outcome)

    def _process_began(self, run: Run) -> None:
        run.begin()
        self._leases.watch(run)

    def finish(self, run: Run, outcome: Outcome) -> None:
        """An attempt is over, one way or the other. Only the first answer counts."""
        self._free_slot(run)
        if run.settled:
            self._left(run)
            if run.abandoned or not isinstance(outcome, Completed):
                self.report.late(run, outcome)
            return
        run.settled = True
        if run.stop == "lost":
            self.runs.pop(run.task.id, None)
            self._wake.set()
            return
        self._outbox.append((run, self.decide(run, outcome)))
        self._wake.set()

    def decide(self, run: Run, outcome: Outcome) -> Transition:
        """What the outcome means, by the state machine."""
        task = run.task
        policy = run.handler.policy if run.handler is not None else Policy(backoff=self.settings.backoff)
        allowed = task.max_attempts if self.options.tries is None else min(task.max_attempts, self.options.tries)
        held = Held(task.id, task.token, task.attempt, allowed, self.id, run.ms)
        decided: Transition | None
        try:
            decided = settle(held, outcome, policy, self._rng())
        except RedriveError as error:  # a snooze whose state cannot be stored
            return settle(held, Fail(error.code, error.message), policy, 0.0)
        except Exception as error:  # and one whose state cannot even be read
            return settle(held, unforeseen(run, error), policy, 0.0)
        if decided is None:  # a Verdict that is none of ours
            return settle(held, unforeseen(run, TypeError()), policy, 0.0)
        return decided

    def abandon(self, run: Run) -> None:
        """The handler does not stop. It is fenced off: settled without it, and whatever it still says is refused."""
        run.abandoned = True
        if run.future is not None:
            self._strays.append(run.future)
        run.break_transaction()
        self.report.abandoned(run)
        if run.trailing:
            self._free_slot(run)
            self._left(run)
        else:
            self.finish(run, stopped(run))

    def lose(self, run: Run) -> None:
        """The heartbeat found that somebody else has the task: stop, and say so; its outcome will not be asked for."""
        if run.settled or run.committing or run.stop == "lost":
            return
        run.ask_to_stop("lost")
        run.stop = "lost"
        run.break_transaction()
        self.report.lost(run)

    @asynccontextmanager
    async def transaction(self, task_id: UUID, result: Callable[[], Any]) -> AsyncIterator[Any]:
        """The handler's writes and the task's completion, in one commit."""
        run = self._still_held(task_id)

        def completion() -> Transition:
            run.committing = True
            handler = run.handler
            outcome = outcome_of(result(), handler) if handler is not None else Completed()
            return self.decide(run, outcome if isinstance(outcome, Completed) else Completed())

        try:
            async with self.store.transaction(completion) as transaction:
                self._still_held(task_id)  # it may have been given up while this waited for a connection
                run.transaction = transaction
                yield transaction
        except BaseException:
            # The commit may have landed without its answer: the next settle has to find out.
            run.again, run.committing = run.committing, False
            raise
        finally:
            run.transaction = None
        if not run.settled:
            run.settled = run.trailing = True
            self.trailing[task_id] = run
        self.report.begin()
        self._landed([(run, completion())], set())
        self.report.flush()

    def _still_held(self, task_id: UUID) -> Run:
        run = self.runs.get(task_id)
        if run is None or run.settled or run.stop == "lost":
            raise LeaseLost(
                f"task {task_id} is no longer held by this attempt; no transaction can complete it",
                hint="one transaction completes a task: do everything that belongs to it in one block",
            )
        return run

    def note_progress(self, task_id: UUID, progress: str) -> None:
        run = self.runs.get(task_id)
        if run is not None:
            run.progress = progress

    # -- after the store's answer ----------------------------------------------------------------------------------

    def _landed(self, batch: Iterable[tuple[Run, Transition]], lost: set[UUID]) -> None:
        for run, transition in batch:
            self.runs.pop(run.task.id, None)
            if run.task.id in lost:
                self.report.refused(run.task, transition)
                continue
            self.report.landed(run.task, transition)
            if transition.delay:
                self._beats.due_in(transition.delay)

    # -- trouble ---------------------------------------------------------------------------------------------------

    def _keep(self, batch: list[tuple[Run, Transition]]) -> None:
        """The answer is unknown: everything goes out again, and what landed the first time is recognised."""
        for run, _ in batch:
            run.again = True
        self._outbox = batch + self._outbox

    async def _rode_out(self, error: RedriveError) -> bool:
        """Wait a little longer each time. False when the worker is to stop and the store does not come back."""
        delay = self.outage.begin(error)
        # From the stop on, however long the store was gone before it.
        waited = min(self.outage.seconds, time.monotonic() - self._stopped_at)
        if self.stopping and waited > LAST_SETTLE_PATIENCE + self.settings.grace_ms / 1000:
            self.outage.give_up(len(self._outbox))
            return False
        if self.options.stop_when_empty and not self.runs and not self._outbox:
            raise error
        await asyncio.sleep(delay)
        return True

    async def _settle_singly(self, batch: list[tuple[Run, Transition]], error: RedriveError) -> None:
        """The store refuses the batch for what is in it. One by one; the culprit is failed with what the store said."""
        if not batch:
            delay = self.outage.begin(error)
            await asyncio.sleep(delay)
            return
        left = batch[::-1]
        while left:
            run, transition = left.pop()
            try:
                cycle = await self.store.cycle([transition], None, again=True)
            except asyncio.CancelledError:
                self._keep([(run, transition), *reversed(left)])
                raise
            except (StoreUnavailable, StoreUnusable) as outage:
                # The others have to wait with it.
                self._keep([(run, transition), *reversed(left)])
                await self._rode_out(outage)
                return
            except RedriveError as refusal:
                verdict = Fail("TASK_OUTCOME_REFUSED", f"the store refused the outcome: {refusal.message}"[:1000])
                if transition.failure is not None and transition.failure.code == verdict.code:
                    raise
                self._outbox.append((run, self.decide(run, verdict)))
            else:
                self._landed([(run, transition)], cycle.lost)

    def _free_slot(self, run: Run) -> None:
        if run.slot:
            run.slot = False
            self._slots += 1

    def _left(self, run: Run) -> None:
        """A handler whose task was settled before it ended has ended, or been given up: its slot is free."""
        run.trailing = False
        self.trailing.pop(run.task.id, None)
        self._wake.set()


def _again(batch: Iterable[tuple[Run, Transition]]) -> bool:
    """Some of these went out before, and the answer never came."""
    return any(run.again for run, _ in batch)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel until it works: a library may swallow a cancellation that arrives at the wrong moment."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
