"""From claimed tasks to outcomes: what this worker holds, in how many slots, and how each attempt ends.

Nothing here decides about states: an outcome goes through ``machine.settle`` and on to ``settling``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.errors import LeaseLost, RedriveError
from redrive.handlers.context import Context
from redrive.handlers.functions import insist_it_ran
from redrive.handlers.registry import Isolation
from redrive.kernel.machine import Lease, Policy, Transition, settle
from redrive.kernel.outcome import Completed, Fail, Outcome, StopReason
from redrive.kernel.task import Claimed
from redrive.worker.bulk import BulkCalls
from redrive.worker.carriers import Carriers
from redrive.worker.processes import ProcessPool
from redrive.worker.run import Run, Runner, outcome_of, stopped, unforeseen
from redrive.worker.threads import ThreadPool

if TYPE_CHECKING:
    from redrive.worker.worker import Worker


class Attempts:
    """Every leased task in this worker's hands, and the coroutine that runs it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.runs: dict[UUID, Run] = {}
        # Completed by their own transaction, with a handler that has not ended yet.
        self.trailing: dict[UUID, Run] = {}
        # Attempts whose task was claimed again by this same worker, with a handler that has not ended yet.
        self.superseded: set[Run] = set()
        self.slots = worker.options.concurrency
        self.claimed = 0
        # Handlers that did not stop and have not ended yet.
        self._strays: set[asyncio.Future[Any]] = set()
        self._threads = ThreadPool()
        self._processes = ProcessPool(self.note_progress)
        self._carriers = Carriers(self._attempt, self.broke)
        self._bulk = BulkCalls(worker, self)
        self._runner = Runner(self._threads, self._processes, worker.id, self._process_began, lambda: worker.cut_off)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._worker.loop

    # -- beginning -------------------------------------------------------------------------------------------------

    def reserve(self, count: int) -> None:
        """Slots for tasks that were claimed and are about to be started."""
        self.claimed += count
        self.slots -= count

    def start(self, tasks: list[Claimed], asked: float) -> None:
        groups: dict[str, list[Run]] = {}
        for task in tasks:
            run = self.hold(task, asked)
            if run.handler is not None and run.handler.bulk:
                groups.setdefault(task.kind, []).append(run)
            elif run.handler is None or run.handler.isolation is Isolation.LOOP:
                self._carriers.add(run)
            else:
                run.future = self.launch(self._attempt(run), [run])
        for runs in groups.values():
            self._bulk.start(runs)

    def hold(self, task: Claimed, asked: float, *, slot: bool = True) -> Run:
        """Take a claimed task into this worker's hands. ``slot``: one was reserved for it."""
        worker = self._worker
        handler = worker.registry.handlers.get(task.kind)
        run = Run(task, handler, Context(task, self, worker.id), self.limit_of(task.kind, task.timeout),
                  worker.settings.start_limit_ms / 1000)  # fmt: skip
        # The store counts the lease from some moment after it was asked.
        run.renewed_at = asked
        run.slot = slot
        self._supersede(task.id)
        self.runs[task.id] = run
        worker.leases.watch(run)
        worker.report.claimed(run)
        return run

    def limit_of(self, kind: str, own: float | None) -> float | None:
        """How long an attempt may run: as the task says, else its kind, else the worker; None: as long as it takes."""
        if own is not None:
            return own
        handler = self._worker.registry.handlers.get(kind)
        if handler is not None and handler.timeout is not None:
            return handler.timeout
        options, settings = self._worker.options, self._worker.settings
        default = settings.timeout_ms / 1000 if options.timeout is None else options.timeout
        return default or None

    # -- running ---------------------------------------------------------------------------------------------------

    def launch(self, attempt: Coroutine[Any, Any, None], runs: list[Run]) -> asyncio.Task[None]:
        """Whatever becomes of the attempt, it ends in ``finish``: also when it is cancelled before its first step."""
        task = self.loop.create_task(attempt)
        task.add_done_callback(lambda done: self._ended(done, runs))
        return task

    def _ended(self, attempt: asyncio.Task[None], runs: list[Run]) -> None:
        error = None if attempt.cancelled() else attempt.exception()
        for run in runs:
            self.broke(run, error)

    def broke(self, run: Run, error: BaseException | None) -> None:
        if not run.settled:
            self.finish(run, self._broken(run, error))

    def _broken(self, run: Run, error: BaseException | None) -> Outcome:
        if self._worker.cut_off and (error is None or isinstance(error, asyncio.CancelledError)):
            run.note_shutdown()
        return unforeseen(run, error) if run.stop is None else stopped(run)

    async def _attempt(self, run: Run) -> None:
        if run.settled:  # given back before its turn came
            return
        try:
            outcome = await self._runner.run(run) if run.stop is None else stopped(run)
        except BaseException as error:
            outcome = self._broken(run, error)
        self.finish(run, outcome)

    async def attempt_bulk(self, runs: list[Run]) -> None:
        for run in runs:
            if run.stop is not None and not run.settled:  # while the call was being filled up
                self.finish(run, stopped(run))
        runs = [run for run in runs if not run.settled]
        if not runs:
            return
        try:
            outcomes = await self._runner.run_bulk(runs)
        except BaseException as error:
            outcomes = [self._broken(run, error) for run in runs]
        for run, outcome in zip(runs, outcomes, strict=True):
            self.finish(run, outcome)

    def _process_began(self, run: Run) -> None:
        run.begin()
        self._worker.leases.watch(run)

    def note_progress(self, task: Claimed, progress: str) -> None:
        run = self._current(task)
        if run is not None:
            run.progress = progress

    @asynccontextmanager
    async def transaction(self, task: Claimed, result: Callable[[], Any]) -> AsyncIterator[Any]:
        """The handler's writes and the task's completion, in one commit."""
        run = self._still_held(task)

        def completion() -> Transition:
            run.committing = True
            handler, value = run.handler, result()
            insist_it_ran(value)
            outcome = outcome_of(value, handler, run.task) if handler is not None else Completed()
            return self.decide(run, outcome if isinstance(outcome, Completed) else Completed())

        try:
            async with self._worker.store.transaction(completion) as transaction:
                self._still_held(task)  # it may have been given up while this waited for a connection
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
            self.trailing[task.id] = run
        self._worker.report.begin()
        self._worker.settling.landed([(run, completion())], set())
        self._worker.report.flush()

    def _current(self, task: Claimed) -> Run | None:
        """The run of this very attempt: a later one of the same task has another token."""
        run = self.runs.get(task.id)
        return run if run is not None and run.task.token == task.token else None

    def _still_held(self, task: Claimed) -> Run:
        run = self._current(task)
        if run is None or run.settled or run.lost:
            raise LeaseLost(
                f"task {task.id} is no longer held by this attempt; no transaction can complete it",
                hint="one transaction completes a task: do everything that belongs to it in one block",
            )
        return run

    # -- ending ----------------------------------------------------------------------------------------------------

    def finish(self, run: Run, outcome: Outcome) -> None:
        """An attempt is over, one way or the other. Only the first answer counts."""
        self._free_slot(run)
        self.superseded.discard(run)
        if run.settled:
            self._left(run)
            if run.abandoned or not isinstance(outcome, Completed):
                self._worker.report.late(run, outcome)
            return
        run.settled = True
        if run.lost:
            self.drop(run)
            self._worker.wake()
            return
        self._worker.settling.add(run, self.decide(run, outcome))
        self._worker.wake()

    def decide(self, run: Run, outcome: Outcome) -> Transition:
        """What the outcome means, by the state machine."""
        worker, task = self._worker, run.task
        policy = run.handler.policy if run.handler is not None else Policy(backoff=worker.settings.backoff)
        tries = worker.options.tries
        allowed = task.max_attempts if tries is None else min(task.max_attempts, tries)
        held = Lease(task.id, task.token, task.attempt, allowed, worker.id, run.ms, task.feature)
        decided: Transition | None
        try:
            decided = settle(held, outcome, policy, worker.rng())
        except RedriveError as error:  # a snooze whose state cannot be stored
            return settle(held, Fail(error.code, error.message), policy, 0.0)
        except Exception as error:  # and one whose state cannot even be read
            return settle(held, unforeseen(run, error), policy, 0.0)
        if decided is None:  # a Verdict that is none of ours
            return settle(held, unforeseen(run, TypeError()), policy, 0.0)
        return decided

    def drop(self, run: Run) -> None:
        """Out of hand: settled, or lost. A later attempt of the same task stays."""
        if self.runs.get(run.task.id) is run:
            del self.runs[run.task.id]

    def _supersede(self, task_id: UUID) -> None:
        """The store gave the task to this worker again, so an attempt that still runs here has lost its lease."""
        old = self.runs.get(task_id)
        if old is not None and not old.settled:
            self.superseded.add(old)
            self.lose(old)

    def lose(self, run: Run) -> None:
        """The heartbeat found that somebody else has the task: stop, and say so; its outcome will not be asked for."""
        if run.settled or run.committing or run.lost:
            return
        run.give_up()
        run.break_transaction()
        self._worker.report.lost(run)

    def abandon(self, run: Run) -> None:
        """The handler does not stop. It is fenced off: settled without it, and whatever it still says is refused."""
        run.abandoned = True
        if run.future is not None:
            self._strays.add(run.future)
            run.future.add_done_callback(self._strays.discard)  # it holds the payload
        run.break_transaction()
        self._worker.report.abandoned(run)
        if run.trailing:
            self._free_slot(run)
            self._left(run)
        else:
            self.finish(run, stopped(run))

    async def stop_all(self, patience: float) -> None:
        """Stop everything now; what does not end within ``patience`` seconds is fenced off."""
        runs = [*self.runs.values(), *self.trailing.values(), *self.superseded]
        for run in runs:
            run.ask_to_stop(StopReason.SHUTDOWN)
        futures = {run.future for run in runs if run.future is not None and not run.future.done()}
        if futures:
            await asyncio.wait(futures, timeout=patience)
        for run in runs:
            if run.future is None and not run.settled:  # claimed, and not begun
                self.finish(run, stopped(run))
            elif run.trailing or not run.settled:
                self.abandon(run)

    def give_back(self, tasks: list[Claimed], asked: float) -> None:
        """Claimed for nothing: the worker is going down. No attempt is used."""
        self.reserve(len(tasks))
        for task in tasks:
            run = self.hold(task, asked)
            run.stop = StopReason.SHUTDOWN
            self.finish(run, stopped(run))

    def close(self) -> None:
        """``asyncio.run`` waits for every task at its end: one that swallows its cancellation would keep the process
        alive for good. It was fenced off and reported; nobody waits for it."""
        for stray in self._strays:
            if isinstance(stray, asyncio.Task) and not stray.done():
                asyncio._unregister_task(stray)
                stray._log_destroy_pending = False  # type: ignore[attr-defined]
        self._bulk.close()
        self._threads.close()
        self._processes.close()

    def _free_slot(self, run: Run) -> None:
        if run.slot:
            run.slot = False
            self.slots += 1

    def _left(self, run: Run) -> None:
        """A handler whose task was settled before it ended has ended, or been given up: its slot is free."""
        run.trailing = False
        if self.trailing.get(run.task.id) is run:
            del self.trailing[run.task.id]
        self._worker.wake()
