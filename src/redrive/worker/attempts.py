"""Runs claimed tasks and hands in their outcomes: how each attempt begins, runs and ends.

Nothing here decides about states: an outcome goes through ``machine.settle`` and on to ``settling``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Set
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from redrive.errors import LeaseLost
from redrive.handlers.context import Context
from redrive.handlers.functions import insist_it_ran
from redrive.handlers.registry import Isolation
from redrive.kernel.machine import Transition
from redrive.kernel.outcome import Completed, HandedBack, Outcome, StopReason
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Claimed
from redrive.worker.bulk import BulkCalls, BulkLimit
from redrive.worker.carriers import Carriers
from redrive.worker.circuits import Circuits
from redrive.worker.config import TimeLimits, WorkerConfig
from redrive.worker.report import Report
from redrive.worker.run import Run, RunState
from redrive.worker.runner import Runner, failed_unexpectedly, outcome_of, stopped
from redrive.worker.settling import Settling
from redrive.worker.state import WorkerState
from redrive.worker.suspects import Suspects

# Looked at for every task: a global is found faster than a member of an enum, or a property.
_TRAILING, _SETTLED, _LEASE_LOST = RunState.TRAILING, RunState.SETTLED, StopReason.LEASE_LOST
_LOOP = Isolation.LOOP


# So many handlers that were given up may run on beside a worker's slots, or as many as it has slots.
FEWEST_STRAYS = 10


class Attempts:
    """Makes runs of claimed tasks, and runs each in a coroutine."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        state: WorkerState,
        settling: Settling,
        report: Report,
        runner: Runner,
        circuits: Circuits | None = None,
    ) -> None:
        self._worker_id = config.id
        self._handlers = config.registry.handlers
        self._start_limit = config.settings.start_limit_ms / 1000
        self._limits = TimeLimits(config)
        self.store = store
        self.settings = config.settings
        self._reacting = frozenset(store.features.reactions.names)
        self._lifecycle = state.lifecycle
        self._runs = state.runs
        self._connection = config.connection
        self._watch = state.next_look.watch
        self._wake = state.signal.wake
        self.note_progress = state.runs.note_progress
        self._settling = settling
        self._report = report
        self._runner = runner
        self._circuits = circuits
        # Handlers that did not stop and have not ended yet.
        self._strays: set[asyncio.Future[Any]] = set()
        self._most_strays = max(config.options.concurrency, FEWEST_STRAYS)
        self._carriers = Carriers(self._attempt, self.broke)
        self.suspects = Suspects(config, store, state, start=self._begin_alone, end=self._hand_back)
        bulk_limit = BulkLimit(config.registry, config.options.queues, state.signal)
        self.open_queues = bulk_limit.queues
        self._bulk = BulkCalls(
            config, state, settling, bulk_limit, take=self.take, launch=self._launch_bulk, broke=self.broke
        )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._lifecycle.loop

    @property
    def connection(self) -> str:
        return self._connection

    @property
    def crowded(self) -> bool:
        """True when more handlers that were given up run on than may beside the worker's slots."""
        return len(self._strays) > self._most_strays

    # -- beginning -------------------------------------------------------------------------------------------------

    def start(self, tasks: list[Claimed], asked: float, suspects: Set[UUID] = frozenset()) -> None:
        """Begins what was claimed; ``suspects`` wait until they are alone."""
        by_kind: dict[str, list[Run]] = {}
        for task in tasks:
            run = self.take(task, asked)
            if run.state >= _TRAILING:  # handed back at once
                continue
            if suspects and task.id in suspects:
                self._report.held_back(run)
                self.suspects.hold_back(run)
            elif run.handler is not None and run.handler.bulk:
                by_kind.setdefault(task.kind, []).append(run)
            elif run.handler is None or run.handler.isolation is _LOOP:
                self._carriers.add(run)
            else:
                run.future = self._launch(self._attempt(run), [run])
        for runs in by_kind.values():
            self._bulk.start(runs)

    def _begin_alone(self, run: Run) -> None:
        self._watch(run)
        if run.handler is not None and run.handler.bulk:
            self._bulk.start([run])
        elif run.handler is None or run.handler.isolation is _LOOP:
            self._carriers.add(run)
        else:
            run.future = self._launch(self._attempt(run), [run])

    def _hand_back(self, run: Run) -> None:
        """Ends a run that was not begun."""
        if not run.settled:
            self.finish(run, stopped(run))

    def take(self, task: Claimed, asked: float, *, slot: bool = True) -> Run:
        """Makes a run of a claimed task. ``slot``: one was reserved for it. One of a feature, or of a
        feature's kind, that this worker does not know is settled at once: it is handed back."""
        handler = self._handlers.get(task.kind)
        limit = self._limits.of(handler, task.timeout)
        run = Run(task, handler, Context(task, self, self._worker_id), limit, self._start_limit)
        # The store counts the lease from some moment after it was asked.
        run.renewed_at = asked
        run.slot = slot
        self._supersede(task.id)
        self._runs[task.id] = run
        self._watch(run)
        if task.feature is not None and task.feature not in self._reacting:
            # Its end would not be taken from this worker. Not begun, it can go back as it came.
            self._report.unknown_feature(run, task.feature)
            self.finish(run, HandedBack(f"feature {task.feature} is not known here"))
            return run
        if task.feature is not None and handler is None:
            # Of another application that has the feature too, with a provider of its own for instance.
            self._report.unknown_kind(run)
            self.finish(run, HandedBack(f"kind {task.kind} is not known here"))
            return run
        self._report.claimed(run)
        return run

    # -- running ---------------------------------------------------------------------------------------------------

    def _launch(self, attempt: Coroutine[Any, Any, None], runs: list[Run]) -> asyncio.Task[None]:
        """Runs an attempt in an ``asyncio.Task`` that always ends in ``finish``, also when it is cancelled before its
        first step."""
        task = self.loop.create_task(attempt)
        task.add_done_callback(lambda done: self._ended(done, runs))
        return task

    def _launch_bulk(self, runs: list[Run]) -> asyncio.Task[None]:
        return self._launch(self._attempt_bulk(runs), runs)

    def _ended(self, attempt: asyncio.Task[None], runs: list[Run]) -> None:
        error = None if attempt.cancelled() else attempt.exception()
        for run in runs:
            self.broke(run, error)

    def broke(self, run: Run, error: BaseException | None) -> None:
        if not run.settled:
            self.finish(run, self._broken(run, error))

    def _broken(self, run: Run, error: BaseException | None) -> Outcome:
        if self._lifecycle.is_cut_off() and (error is None or isinstance(error, asyncio.CancelledError)):
            run.note_shutdown()
        return failed_unexpectedly(run, error) if run.stop is None else stopped(run)

    async def _attempt(self, run: Run) -> None:
        if run.state >= _TRAILING:  # given back before its turn came
            return
        try:
            outcome = await self._runner.run(run) if run.stop is None else stopped(run)
        except BaseException as error:
            outcome = self._broken(run, error)
            if isinstance(error, GeneratorExit):  # its loop has ended: there is nothing to wait for any more
                self.finish(run, outcome)
                return
        if self._circuits is not None:
            (outcome,) = await self._circuits.judge([run], [outcome])
        self.finish(run, outcome)

    async def _attempt_bulk(self, runs: list[Run]) -> None:
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
            if isinstance(error, GeneratorExit):
                self._finish_all(runs, outcomes)
                return
        if self._circuits is not None:
            outcomes = await self._circuits.judge(runs, outcomes)
        self._finish_all(runs, outcomes)

    def _finish_all(self, runs: list[Run], outcomes: list[Outcome]) -> None:
        for run, outcome in zip(runs, outcomes, strict=True):
            self.finish(run, outcome)

    @asynccontextmanager
    async def transaction(self, task: Claimed, result: Callable[[], Any]) -> AsyncIterator[Any]:
        """Opens the handler's own transaction: its writes and the task's completion are one commit."""
        run = self._insist_on_lease(task)

        def completion() -> Transition:
            run.committing = True
            handler, value = run.handler, result()
            insist_it_ran(value)
            outcome = outcome_of(value, handler, run.task) if handler is not None else Completed()
            return self._settling.decide(run, outcome if isinstance(outcome, Completed) else Completed())

        try:
            async with self.store.sql.transaction(completion) as transaction:
                self._insist_on_lease(task)  # it may have been given up while this waited for a connection
                run.transaction = transaction
                yield transaction
        except BaseException:
            # The commit may have landed without its answer: the next settle has to find out.
            run.again, run.committing = run.committing, False
            raise
        finally:
            run.transaction = None
        if not run.settled:
            self._runs.keep_trailing(run)
        self._report.begin()
        self._settling.landed([(run, completion())], set(), {})
        self._report.flush()

    def _insist_on_lease(self, task: Claimed) -> Run:
        run = self._runs.of_attempt(task)
        if run is None or run.settled or run.lost:
            raise LeaseLost(
                f"task {task.id} is no longer held by this attempt; no transaction can complete it",
                hint="one transaction completes a task: do everything that belongs to it in one block",
            )
        return run

    # -- ending ----------------------------------------------------------------------------------------------------

    def finish(self, run: Run, outcome: Outcome) -> None:
        """Ends an attempt with its outcome. Only the first outcome of a run counts."""
        self._runs.free_slot(run)
        self._runs.superseded.discard(run)
        if run.state >= _TRAILING:
            self._left(run)
            if run.state is RunState.ABANDONED or not isinstance(outcome, Completed):
                self._report.late(run, outcome)
            return
        run.state = _SETTLED
        if run.stop is _LEASE_LOST:
            self._runs.drop(run)
            self._wake()
            return
        self._settling.add(run, outcome)
        self._wake()

    def _supersede(self, task_id: UUID) -> None:
        """Gives up an attempt that still runs here when the store has given its task to this worker again."""
        old = self._runs.get(task_id)
        if old is not None and not old.settled:
            self._runs.superseded.add(old)
            self.lose(old)

    def lose(self, run: Run) -> None:
        """Stops a run whose lease somebody else has, and logs it; its outcome is not handed in."""
        if run.settled or run.committing or run.lost:
            return
        run.give_up()
        run.break_transaction()
        self._report.lost(run)

    def abandon(self, run: Run) -> None:
        """Settles a run without its handler, which does not stop; whatever the handler still returns is refused."""
        if run.future is not None:
            self._strays.add(run.future)
            run.future.add_done_callback(self._strays.discard)  # it holds the payload
        run.break_transaction()
        self._runner.abandoned(run)
        self._report.abandoned(run)
        # Beyond a number of them, each keeps its slot until it ends: threads that run on are not to fill the machine.
        slot = run.slot and self.crowded
        run.slot = run.slot and not slot
        if run.state is RunState.TRAILING:
            self._runs.free_slot(run)
            self._left(run)
        else:
            outcome = stopped(run)
            if self._circuits is not None:
                self._circuits.judge_later(run, outcome)
            self.finish(run, outcome)
        run.state, run.slot = RunState.ABANDONED, slot

    async def stop_all(self, patience: float) -> None:
        """Stops everything now; what does not end within ``patience`` seconds is abandoned."""
        runs = self._runs.everything()
        for run in runs:
            run.ask_to_stop(StopReason.SHUTDOWN)
        futures = {run.future for run in runs if run.future is not None and not run.future.done()}
        if futures:
            await asyncio.wait(futures, timeout=patience)
        for run in runs:
            if run.future is None and not run.settled:  # claimed, and not begun
                self.finish(run, stopped(run))
            elif run.awaited:
                self.abandon(run)

    def give_back(self, tasks: list[Claimed], asked: float) -> None:
        """Returns tasks that were claimed while the worker is going down. No attempt is used up."""
        self._runs.reserve(len(tasks))
        for task in tasks:
            run = self.take(task, asked)
            run.stop = StopReason.SHUTDOWN
            self.finish(run, stopped(run))

    def close(self) -> None:
        """Ends threads and processes, and forgets abandoned handlers: ``asyncio.run`` would wait at its end for one
        that swallows its cancellation, and keep the process alive for good."""
        for stray in self._strays:
            if isinstance(stray, asyncio.Task) and not stray.done():
                asyncio._unregister_task(stray)
                stray._log_destroy_pending = False  # type: ignore[attr-defined]
        self._bulk.close()
        self._runner.close()

    def _left(self, run: Run) -> None:
        """Frees the slot of a handler whose task was settled before it ended, and which has ended or was given up."""
        self._runs.drop_trailing(run)
        self._wake()
