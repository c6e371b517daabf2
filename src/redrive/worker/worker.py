"""Fills one process's slots with tasks from the store, and settles them back into it.

``Worker`` is the hot loop (settle and claim) and the life around it. Beside it run the lease keeper (heartbeats,
deadlines), the ticker (liveness, promotion, duties) and one coroutine per attempt (``attempts``); what they decide
goes out through ``settling`` and comes back from the store as landed or lost. They share ``runs`` (what is claimed) and
``life`` (whether it ends); only the worker knows all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from redrive.errors import ConfigError, InvalidTransition, RedriveError, StoreUnavailable, StoreUnusable
from redrive.handlers.registry import Registry
from redrive.kernel.commit import Schedule
from redrive.kernel.duty import Duty
from redrive.kernel.handler_notes import LoopBlock
from redrive.kernel.ports.store import ClaimRequest, Cycle, Store, Wake
from redrive.kernel.retention import Retention
from redrive.observe.health import Health
from redrive.observe.logs import TaskLog
from redrive.settings import Options, Settings
from redrive.worker.announce import Announcer
from redrive.worker.attempts import Attempts
from redrive.worker.decisions import Decisions
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.lease import STOP_GRACE_S, LeaseKeeper, NextLook
from redrive.worker.life import Background, Life
from redrive.worker.loop_watch import LoopWatch
from redrive.worker.maintenance.duties import standard_duties
from redrive.worker.outage import Outage
from redrive.worker.prepare import Preparation, prepare
from redrive.worker.report import Report
from redrive.worker.room import Room
from redrive.worker.runs import Runs
from redrive.worker.settling import Call, Settling, end
from redrive.worker.ticker import Ticker
from redrive.worker.time_limits import TimeLimits

# From this many slots on, a claim fills half of them: the other half runs while the store is at work.
CLAIM_BY_HALVES_FROM = 200
LOOK_AGAIN_FIRST_S, LOOK_AGAIN_LAST_S = 0.002, 0.25


class Worker:
    """Runs tasks of the given queues until told to stop: ``await worker.run()``, or ``async with worker:`` beside what
    else the event loop does. Made by ``App.worker``; each runs once."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        options: Options,
        *,
        log: TaskLog | None = None,
        schedules: Sequence[Schedule] = (),
        owner: str = "default",
        rng: Callable[[], float] = random.random,
        duties: Iterable[Duty] = (),
        retention: Retention | None = None,
        where: str = "its store",
    ) -> None:
        self.store = store
        self.registry = registry
        self.settings = settings
        self.options = options
        self.id = settings.worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.health = Health(worker_id=self.id)
        self.life = Life()
        self.runs = Runs(options.concurrency)
        self._wake = asyncio.Event()
        self.outage = Outage(self.id, self.health)
        report = self.report = Report(log or TaskLog(style="off"), self.health)
        report.log.name(self.id)
        self.announce = Announcer(
            self.id, report.log, self.runs, self.health, options, grace_ms=settings.grace_ms, where=where
        )
        self._preparation = Preparation(store, registry, settings, tuple(schedules), owner)
        self.notes = HandlerNotes(store, self.id)
        self._loop_watch = LoopWatch(self.id, self._loop_was_blocked)
        limits = TimeLimits(registry, settings, options)
        kept = retention or Retention(settings.history_days, settings.key_days)
        standard = standard_duties(settings, kept, report, limits, store.reacting)
        self.duties = {duty.name: duty for duty in standard}
        for duty in duties:
            if duty.name in self.duties:
                raise ConfigError(f"two duties are named {duty.name!r}", hint="rename the feature's own")
            self.duties[duty.name] = duty
        self.ticker = Ticker(
            self.id,
            store,
            options,
            settings.interval,
            life=self.life,
            runs=self.runs,
            health=self.health,
            outage=self.outage,
            duties=self.duties,
            tallies=report.tallies,
            notes=self.notes,
            look=self.look,
        )
        decide = Decisions(self.id, settings.backoff, options.tries, rng).decide
        self.settling = Settling(
            store,
            self.life,
            self.runs,
            outage=self.outage,
            health=self.health,
            report=report,
            decide=decide,
            due_in=self.ticker.due_in,
            grace=settings.grace_ms / 1000,
            wait_when_idle=not options.stop_when_empty,
        )
        next_look = NextLook()
        self.attempts = Attempts(
            self.id,
            store,
            registry,
            settings,
            options,
            life=self.life,
            runs=self.runs,
            limits=limits,
            settling=self.settling,
            report=report,
            notes=self.notes,
            decide=decide,
            watch=next_look.watch,
            wake=self._wake.set,
            no_room=Room(self.id, self.runs, self.health, self.look, lambda: self.attempts.started()).missing,
        )
        self.leases = LeaseKeeper(
            store,
            settings,
            self.runs,
            self.outage,
            next_look,
            on_lost=self.attempts.lose,
            on_stuck=self.attempts.abandon,
            on_grace_over=self.announce.grace_over,
        )
        self._at_once = options.concurrency // (2 if options.concurrency >= CLAIM_BY_HALVES_FROM else 1)
        self._look = True
        self._empty = False
        self._gave_up = False
        self._broken: BaseException | None = None
        self._patience = LOOK_AGAIN_FIRST_S
        self._tried: dict[str, object] = {}
        self._deafen: Callable[[], None] = lambda: None
        self._asked = False
        self._background: Background | None = None

    @property
    def stopping(self) -> bool:
        """True when it claims no more."""
        return self.life.stopping

    @property
    def died(self) -> Exception | None:
        """What it ended by, if that was an error: it runs nothing any more."""
        return self.life.died

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until stopped or until an option says that it is enough. Everything claimed is settled at the end.

        A cancellation is a request to stop, with the same grace for what runs as a signal gives. A second one cuts
        that short: handlers are interrupted at once, and what they had is handed back."""
        self._insist_on_first_run()
        await self.life.live(self._live(), lambda: self.stop("cancelled"))

    def _insist_on_first_run(self) -> None:
        if self.life.started:
            raise InvalidTransition("this worker has run already", hint="make another one: app.worker()")

    async def __aenter__(self) -> Worker:
        self._insist_on_first_run()
        self._background = Background(self.run(), self.stop, self.life.begun.wait, self.announce.died)
        await self._background.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._background is not None
        await self._background.end()

    async def prepare(self) -> None:
        """Opens the store and tells it what this application limits and schedules, as ``run`` does at its beginning."""
        await prepare(self._preparation, self.life, self.outage, wait=not self.options.stop_when_empty)

    async def _live(self) -> None:
        self.life.on_begun = self.announce.started
        self.health.started_at = time.time()
        helpers: list[asyncio.Task[None]] = []
        try:
            await self.prepare()
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
            self.life.died = error if isinstance(error, Exception) else None
            self._retire()
            if self.runs.any_left or self.settling.unfinished:
                await self.attempts.stop_all(STOP_GRACE_S)
                await self.settling.hand_back(self.attempts.give_back)
            raise
        finally:
            self._loop_watch.stop()
            self._deafen()
            await end(helpers)
            self._retire()
            with contextlib.suppress(RedriveError):
                await self.ticker.leave()
            self.attempts.close()
            self.report.flush()
            self._asked = True  # whoever asks from now on has nothing to wait for
            self.announce.stopped()

    def _loop_was_blocked(self, block: LoopBlock) -> None:
        self.health.loop_blocked += 1
        self.notes.blocked(block)

    def _helper_ended(self, helper: asyncio.Task[None]) -> None:
        """Ends a worker whose lease keeper or ticker has died: it would go on without heartbeats or deadlines."""
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self._broken = error
            self.wake()

    def stop(self, why: str = "asked to stop", *, hint: str = "") -> None:
        """Claims no more; lets what runs finish within the grace period, then hands it back. ``why`` is for the log."""
        if not self._asked:
            self._asked = True
            self.announce.stopping(why, hint)
        self.leases.begin_grace()
        self._retire()
        self.wake()

    def _retire(self) -> None:
        """Claims no more, and ends when everything that runs has ended by itself. Once: the hot loop asks for it again
        and again when its time is over, and would wake itself for ever, and let nothing else run."""
        if self.life.stopping:
            return
        self.life.retire()
        self.health.stopping = True
        self.wake()

    def wake(self) -> None:
        """Wakes the hot loop: something changed that it waits for."""
        self._wake.set()

    def look(self) -> None:
        """Makes the hot loop claim: there may be something."""
        self._look = True
        self._wake.set()

    def on_wake(self, wake: Wake) -> None:
        """Takes a hint from the store. Wrong hints cost a look, missing ones a poll interval."""
        if wake.cancel:
            self.ticker.due_in(0)
        elif wake.queue is not None and wake.queue != "*" and wake.queue not in self.options.queues:
            return
        elif wake.due_in is not None:
            self.ticker.due_in(wake.due_in)
        else:
            self.look()

    # -- the hot loop ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        ends = time.monotonic() + (self.options.max_time or float("inf"))
        answered: tuple[Call, Cycle] | None = None
        while not self._gave_up and (answered is not None or not await self._finished()):
            if answered is None:
                await self._wait(ends)
            if self._broken is not None:
                raise self._broken
            if time.monotonic() >= ends:
                self._retire()
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
            self._look = False  # a hint from now on may be about something that this call does not see
        return self.settling.send(settlements, want)

    async def _answer(self, call: Call) -> tuple[Call, Cycle] | None:
        """Returns what the store answered; None when it had no answer, and the call's outcomes were kept for
        another."""
        try:
            cycle = await self.settling.answer(call)
        except (StoreUnavailable, StoreUnusable) as error:
            self._look = True
            self.settling.keep(call.settlements)
            self._gave_up = not await self.settling.wait_out_outage(error)
            return None
        except RedriveError as error:
            self._look = True
            await self.settling.settle_one_by_one(call.settlements, error)
            return None
        self.outage.over()
        if call.want is not None:
            self.runs.reserve(len(cycle.claimed))
            if len(cycle.claimed) >= call.want.count or (cycle.more and cycle.claimed):
                self._look = True
            elif cycle.more:
                self._look_soon()
            if cycle.claimed:
                self._patience = LOOK_AGAIN_FIRST_S
            self._empty = not cycle.claimed and not cycle.more
            if self.options.once and self._empty:
                self._retire()
        return call, cycle

    def _take_in(self, call: Call, cycle: Cycle) -> None:
        self.settling.taken(call)
        self.report.begin()
        self.settling.landed(call.settlements, cycle.lost)
        self.attempts.start(cycle.claimed, call.asked)
        self.report.flush()

    def _look_soon(self) -> None:
        """Plans another look when what is there is locked by others: soon, and then less soon."""
        self.life.loop.call_later(self._patience, self.look)
        self._patience = min(self._patience * 2, LOOK_AGAIN_LAST_S)

    async def _finished(self) -> bool:
        if self.runs.any_left or self.settling.unsettled:
            return False
        if self.options.stop_when_empty and self._empty and not self.life.stopping:
            # Empty means: also nothing that is due but not yet promoted, recovered, fired or retried in bulk.
            if self.ticker.busy:
                return False
            self._empty = False
            if await self.ticker.tick_now():
                return False
            # A hint, or a duty, may have come while we asked.
            return not await self._begin_duties_with_work() and not self._look and not self.ticker.busy
        return self.life.stopping

    async def _begin_duties_with_work(self) -> bool:
        """Begins duties that can bring tasks now, whoever had them last; returns whether there were any. What moved
        nothing the last time is left."""
        asked = {name: duty.has_work for name, duty in self.duties.items() if duty.has_work is not None}
        try:
            found = {name: await has_work(self.store, self.id) for name, has_work in asked.items()}
        except (StoreUnavailable, StoreUnusable):
            self._look = True  # the next claim meets the same trouble, and rides it out
            return True
        moving = [name for name, what in found.items() if what and what != self._tried.get(name)]
        self._tried = found
        for name in moving:
            self.ticker.begin(name)
        return bool(moving)

    async def _wait(self, ends: float) -> None:
        """Waits until there is something to settle, room and reason to look, or the poll interval has passed."""
        if self._busy():
            self._wake.clear()
            return
        try:
            left = ends - time.monotonic() if not self.life.stopping else self.options.sleep
            async with asyncio.timeout(min(self.options.sleep, max(left, 0))):
                await self._wake.wait()
        except TimeoutError:
            self._look = True
        self._wake.clear()

    def _busy(self) -> bool:
        """Returns whether there is something to settle, or room and reason to look."""
        return bool(self.settling.unsettled) or (self._look and self.runs.slots > 0 and not self.life.stopping)

    def _want(self) -> ClaimRequest | None:
        if self.life.stopping or self.runs.slots <= 0:
            return None
        count = min(self.runs.slots, self._at_once)
        limit = 1 if self.options.once else self.options.max_jobs
        if limit is not None:
            count = min(count, limit - self.runs.claimed)
            if count <= 0:
                self._retire()
                return None
        handles = tuple(self.registry.handlers) if self.settings.unknown_kind == "leave" else None
        return ClaimRequest(self.id, self.options.queues, count, self.settings.lease, handles)
