"""Fills one process's slots with tasks from the store, and settles them back into it.

``Worker`` is the hot loop (settle and claim) and the life around it. Beside it run the lease keeper (renewals,
deadlines), the ticker (promotion, duties), the beat (liveness, in a thread) and one coroutine per attempt
(``attempts``); what they decide goes out through ``settling`` and comes back from the store as landed or lost. They
share what the worker was told (``config``) and how it is (``state``); only the worker knows all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

from redrive.errors import InvalidTransition, RedriveError, StoreBlocked, StoreUnavailable, StoreUnusable
from redrive.kernel.commit import Declare
from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import ClaimRequest, Cycle, Store, Wake
from redrive.kernel.retention import Retention
from redrive.observe.logs import TaskLog
from redrive.worker.attempts import Attempts
from redrive.worker.circuits import Circuits
from redrive.worker.config import WorkerConfig
from redrive.worker.duties import DutyRunner, by_name, standard_duties
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.hooks import HookedReport, Hooks
from redrive.worker.lease import STOP_GRACE_S, LeaseKeeper
from redrive.worker.lifecycle import Announcer, Background, wait_until_stopped
from redrive.worker.liveness import Liveness
from redrive.worker.loop_watch import LoopWatch
from redrive.worker.pools import Shortage
from redrive.worker.prepare import Preparation, preload, prepare
from redrive.worker.recycling import ProcessLimits
from redrive.worker.report import Report
from redrive.worker.runner import HandlerPools, Runner
from redrive.worker.settling import Call, Settling, end
from redrive.worker.state import new_state
from redrive.worker.ticker import Ticker

# From this many slots on, a claim fills half of them: the other half runs while the store is at work.
CLAIM_BY_HALVES_FROM = 200
LOOK_AGAIN_FIRST_S, LOOK_AGAIN_LAST_S = 0.002, 0.25


class Worker:
    """Runs tasks of the given queues until told to stop: ``await worker.run()``, or ``async with worker:`` beside what
    else the event loop does. Made by ``App.worker``; each runs once."""

    def __init__(
        self,
        store: Store,
        config: WorkerConfig,
        declared: Declare,
        *,
        log: TaskLog | None = None,
        duties: Iterable[Duty] = (),
        retention: Retention | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        log = log or TaskLog(style="off")
        log.name(config.id)
        self.store = store
        self.id = config.id
        self.registry = config.registry
        self.settings = config.settings
        self.options = config.options
        self.state = state = new_state(config)
        self.lifecycle = state.lifecycle
        self.runs = state.runs
        self.health = state.health
        self.counters = state.counters
        notes = HandlerNotes(store, config.id)
        expected = [(handler.queue, kind) for kind, handler in config.registry.handlers.items()]
        self.hooks = hooks
        parts = (log, state.health, state.counters, notes, expected)
        self.report = Report(*parts) if hooks is None else HookedReport(hooks, config.id, *parts)
        self.announce = Announcer(config, state, log)
        self._preparation = Preparation(store, config.registry, config.settings, declared, config.options.queues)
        self.duties = by_name(
            [*standard_duties(config, retention, self.report, store.features.reactions.names), *duties]
        )
        self._duty_runner = DutyRunner(config, store, state, self.duties)
        self.ticker = Ticker(config, store, state, self.report.tallies, self._duty_runner, notes)
        self.settling = Settling(config, store, state, self.report, self.ticker.due_in)
        runner = self._runner(config)
        runner.keeps_errors = hooks is not None
        circuits = None
        if any(handler.circuit is not None for handler in config.registry.handlers.values()):
            circuits = Circuits(store, config.id, config.registry, log.worker)
        self.attempts = Attempts(config, store, state, self.settling, self.report, runner, circuits)
        self.leases = LeaseKeeper(
            store,
            config.settings,
            state,
            on_lost=self.attempts.lose,
            on_stuck=self.attempts.abandon,
            on_grace_over=self.announce.grace_over,
        )
        self.liveness = Liveness(
            config,
            store,
            state,
            on_dead=self._recover,
            on_declared=self._declared_dead,
            on_lost=self.attempts.lose,
            on_drain=self.drain,
            on_contact=state.outage.try_now,
        )
        state.outage.on_back = self.ticker.due_now
        self._loop_watch = LoopWatch(config.id, self.report.blocked, state.counters.lags.note)
        self._at_once = self.options.concurrency // (2 if self.options.concurrency >= CLAIM_BY_HALVES_FROM else 1)
        self._limits = ProcessLimits(self.options.with_values(max_jobs=None))  # those are counted when it claims
        self._signal = state.signal
        self._hints = state.hints
        self._empty = False
        self._gave_up = False
        self._broken: BaseException | None = None
        self._patience = LOOK_AGAIN_FIRST_S
        self._deafen: Callable[[], None] = lambda: None
        self._asked = False
        self._background: Background | None = None

    def _runner(self, config: WorkerConfig) -> Runner:
        pools = HandlerPools(self.runs.note_progress)
        shortage = Shortage(config.id, self.state, pools.started)
        parts = (pools, config.id, self.state.next_look.began, self.lifecycle.is_cut_off, shortage.note)
        if config.tracing is None:
            return Runner(*parts)
        from redrive.worker.runner import TracedRunner

        return TracedRunner(config.tracing, *parts)

    @property
    def stopping(self) -> bool:
        """True when it claims no more."""
        return self.lifecycle.stopping

    @property
    def died(self) -> Exception | None:
        """What it ended by, if that was an error: it runs nothing any more."""
        return self.lifecycle.died

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until stopped or until an option says that it is enough. Everything claimed is settled at the end.

        A cancellation is a request to stop, with the same grace for what runs as a signal gives. A second one cuts
        that short: handlers are interrupted at once, and what they had is handed back."""
        self._insist_on_first_run()
        await wait_until_stopped(self.lifecycle.start(self._live()), lambda: self.stop("cancelled"))

    def _insist_on_first_run(self) -> None:
        if self.lifecycle.started:
            raise InvalidTransition("this worker has run already", hint="make another one: app.worker()")

    async def __aenter__(self) -> Worker:
        self._insist_on_first_run()
        self._background = Background(self.run(), self.stop, self.lifecycle.begun.wait, self.announce.died)
        await self._background.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        await self._background.end()

    async def prepare(self) -> None:
        """Opens the store and tells it what this application limits and schedules, as ``run`` does at its beginning."""
        await prepare(self._preparation, self.lifecycle, self.state.outage, wait=not self.options.stop_when_empty)

    async def _live(self) -> None:
        self.lifecycle.on_begun = self.announce.started
        self.health.started_at = time.time()
        helpers: list[asyncio.Task[None]] = []
        try:
            for check in self.registry.before_work:
                check(self.options.queues)
            await preload(self.registry, self.options.queues)
            await self.prepare()
            await self.liveness.start()
            self._deafen = self.store.listen(self.on_wake, self.options.queues)
            helpers = [
                asyncio.create_task(self.leases.run(), name="redrive-leases"),
                asyncio.create_task(self.ticker.run(), name="redrive-ticker"),
            ]
            self._loop_watch.start()
            for helper in helpers:
                helper.add_done_callback(self._helper_ended)
            await self._work()
        except BaseException as error:
            # Cancelled, or something that nobody expected: whatever is claimed goes back.
            self.lifecycle.died = error if isinstance(error, Exception) else None
            self._retire()
            if self.runs.any_left or self.settling.unfinished:
                await self.attempts.stop_all(STOP_GRACE_S)
                await self.settling.hand_back(self.attempts.give_back)
            raise
        finally:
            self._loop_watch.stop()
            self._deafen()
            await end(helpers)
            await self.liveness.stop()
            self._retire()
            with contextlib.suppress(RedriveError):
                await self.ticker.leave()
            self.attempts.close()
            self.report.flush()
            if self.hooks is not None:
                await self.hooks.close()
            self._asked = True  # whoever asks from now on has nothing to wait for
            self.announce.stopped()

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        """Ends a worker whose lease keeper or ticker has died: it would go on without heartbeats or deadlines."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self._broken = error
            self._signal.wake()

    def _recover(self) -> None:
        """Takes back what workers had that are dead, without waiting for the next tick."""
        for name in self.duties:
            if name == "recover" or name.startswith("recover:"):
                self._duty_runner.begin(name)

    def _declared_dead(self) -> None:
        self.announce.declared_dead()
        self.leases.doubt()

    def drain(self) -> None:
        """Claims no more and ends when all has ended that runs: somebody has asked for it, and nobody waits."""
        if not self.lifecycle.stopping:
            self.announce.draining()
        self._retire()

    def stop(self, why: str = "asked to stop", *, hint: str = "") -> None:
        """Claims no more; lets what runs finish within the grace period, then hands it back. ``why`` is for the log."""
        if not self._asked:
            self._asked = True
            self.announce.stopping(why, hint)
        self.leases.begin_grace()
        self._retire()
        self._signal.wake()

    def _retire(self) -> None:
        """Claims no more, and ends when everything that runs has ended by itself. Once: the hot loop asks for it again
        and again when its time is over, and would wake itself for ever, and let nothing else run."""
        if self.lifecycle.stopping:
            return
        self.lifecycle.retire()
        self.health.stopping = True
        self._signal.wake()

    def on_wake(self, wake: Wake) -> None:
        """Takes a hint from the store. Wrong hints cost a look, missing ones a poll interval."""
        self.state.outage.try_now()  # whoever sends hints is there
        if wake.cancel:
            self.ticker.due_now()
        elif wake.queue is not None and wake.queue != "*" and wake.queue not in self.options.queues:
            return
        elif wake.due_in is not None:
            self.ticker.due_in(wake.due_in)
        elif self.options.stop_when_empty:
            self._signal.look()  # it may end before a patient one would look
        else:
            self._hints.hear()

    # -- the hot loop ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        limits = self._limits
        limits.begin()
        answered: tuple[Call, Cycle] | None = None
        while not self._gave_up and (answered is not None or not await self._finished()):
            if answered is None:
                await self.attempts.suspects.start_if_alone()  # no claim is under way that could bring others
                await self._wait(limits.next_look)
            if self._broken is not None:
                raise self._broken
            if time.monotonic() >= limits.next_look and (why := limits.reached()) is not None:
                self._had_enough(why)
            call = self._next_call()
            if answered is not None:
                if call is not None:
                    await asyncio.sleep(0)  # it goes out first: the store works while this answer is taken in
                self._take_in(*answered)
            answered = None if call is None else await self._answer(call)

    def _next_call(self) -> Call | None:
        if not self._busy():
            return None
        want = self._want()
        settlements = self.settling.take()
        if not settlements and want is None:
            return None
        if want is not None:
            self._signal.to_look = False  # a hint from now on may be about something that this call does not see
        return self.settling.send(settlements, want)

    async def _answer(self, call: Call) -> tuple[Call, Cycle] | None:
        """Returns what the store answered; None when it had no answer, and the call's outcomes were kept for
        another."""
        try:
            cycle = await self.settling.answer(call)
        except (StoreUnavailable, StoreUnusable) as error:
            self._signal.to_look = True
            if isinstance(error, StoreBlocked) and self.settling.put_aside(call.settlements):
                return None
            self.settling.keep(call.settlements)
            self._gave_up = not await self.settling.wait_out_outage(error)
            return None
        except RedriveError as error:
            self._signal.to_look = True
            await self.settling.settle_one_by_one(call.settlements, error)
            return None
        self.state.outage.over()
        if call.want is not None:
            self.runs.reserve(len(cycle.claimed))
            if len(cycle.claimed) >= call.want.count or (cycle.more and cycle.claimed):
                self._signal.to_look = True
            elif cycle.more:
                self._look_soon()
            if cycle.claimed:
                self._patience = LOOK_AGAIN_FIRST_S
                call.suspects = await self.attempts.suspects.among(cycle.claimed)
            self._empty = not cycle.claimed and not cycle.more
            self._hints.note_look(bool(cycle.claimed))
            if self.options.once and self._empty:
                self._retire()
        return call, cycle

    def _take_in(self, call: Call, cycle: Cycle) -> None:
        self.settling.take_answer(call)
        self.report.begin()
        self.settling.landed(call.settlements, cycle.lost, cycle.instead)
        self.attempts.start(cycle.claimed, call.asked, call.suspects)
        self.report.flush()
        if call.want is not None:
            self.lifecycle.claiming.set()

    def _look_soon(self) -> None:
        """Plans another look when what is there is locked by others: soon, and then less soon."""
        self.lifecycle.loop.call_later(max(self._patience, self._hints.wait()), self._signal.look)
        self._patience = min(self._patience * 2, LOOK_AGAIN_LAST_S)

    async def _finished(self) -> bool:
        if self.runs.any_left or self.settling.unsettled:
            return False
        if self.options.stop_when_empty and self._empty and not self.lifecycle.stopping:
            # Empty means: also nothing that is due but not yet promoted, recovered, fired or retried in bulk.
            if self._duty_runner.busy or self._signal.to_look:
                return False
            self._empty = False
            if await self.ticker.tick_now():
                return False
            # A hint, or a duty, may have come while we asked.
            return not await self._begin_duties_with_work() and not self._signal.to_look and not self._duty_runner.busy
        return self.lifecycle.stopping

    async def _begin_duties_with_work(self) -> bool:
        try:
            return await self._duty_runner.begin_those_with_work()
        except (StoreUnavailable, StoreUnusable):
            self._signal.to_look = True  # the next claim meets the same trouble, and rides it out
            return True

    def _had_enough(self, why: str) -> None:
        if not self.lifecycle.stopping:
            self.announce.had_enough(why)
        self._retire()

    async def _wait(self, ends: float) -> None:
        """Waits until there is something to settle, room and reason to look, or the poll interval has passed."""
        if self._busy():
            self._signal.heard()
            return
        left = ends - time.monotonic() if not self.lifecycle.stopping else self.options.sleep
        await self._signal.wait(min(self.options.sleep, max(left, 0)))

    def _busy(self) -> bool:
        """Returns whether there is something to settle, or room and reason to look."""
        return bool(self.settling.unsettled) or (
            self._signal.to_look
            and self.runs.slots > 0
            and not self.lifecycle.stopping
            and not self.settling.blocked.full
            and not self.runs.suspect
        )

    def _want(self) -> ClaimRequest | None:
        if self.lifecycle.stopping or self.runs.slots <= 0 or self.settling.blocked.full or self.runs.suspect:
            return None
        count = min(self.runs.slots, self._at_once, self.attempts.suspects.claim_limit)
        limit = 1 if self.options.once else self.options.max_jobs
        if limit is not None:
            count = min(count, limit - self.runs.claimed)
            if count <= 0:
                self._retire()
                return None
        queues = self.attempts.open_queues()
        if not queues:
            self._signal.to_look = False  # until a call has ended that fills them
            return None
        handles = tuple(self.registry.handlers) if self.settings.unknown_kind == "leave" else None
        return ClaimRequest(self.id, queues, count, self.settings.lease, handles)
