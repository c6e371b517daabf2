"""Brings outcomes into the store: decided by the state machine, gathered, sent with the next claim, sent again until an
answer came.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.errors import ErrorCode, RedriveError, StoreBlocked, StoreUnavailable, StoreUnusable
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Policy, Transition, complete, settle
from redrive.kernel.outcome import Completed, Fail, Outcome
from redrive.kernel.ports.store import ClaimRequest, Cycle, Store
from redrive.kernel.task import Claimed, State
from redrive.worker.blocked import Blocked, Settlements
from redrive.worker.config import WorkerConfig
from redrive.worker.report import Report
from redrive.worker.run import Run
from redrive.worker.runner import failed_unexpectedly
from redrive.worker.state import WorkerState

MOST_SETTLED_PER_CALL = 2000
LAST_SETTLE_PATIENCE_S = 15.0
HAND_BACK_PATIENCE_S = 5.0
ASK_AGAIN_AFTER_S = 1.05


@dataclass(slots=True, eq=False)
class Call:
    """A settle-and-claim that the store was asked for: what it settles, what it claims, and when."""

    task: asyncio.Task[Cycle]
    settlements: Settlements
    want: ClaimRequest | None
    asked: float
    suspects: frozenset[UUID] = frozenset()  # of what it claimed


class Settling:
    """The outcomes of a worker that are not settled yet. One leaves when the store has answered for it, not before.

    ``due_in`` hears of delays that were stored."""

    def __init__(
        self, config: WorkerConfig, store: Store, state: WorkerState, report: Report, due_in: Callable[[float], None]
    ) -> None:
        self._worker_id = config.id
        self._backoff = config.settings.backoff
        self._tries = config.options.tries
        self._grace = config.settings.grace_ms / 1000  # what handlers have to end, in seconds
        # One that stops when nothing is left does not wait for its store with nothing in its hands, and looks again
        # after each settlement: a claim of the same call need not see what that made ready.
        self._drains = config.options.stop_when_empty
        self._store = store
        tracing = config.tracing
        self._cycle = tracing.traced(store.cycle) if tracing is not None and tracing.calls else store.cycle
        self._lifecycle = state.lifecycle
        self._signal = state.signal
        self._runs = state.runs
        self._outage = state.outage
        self._health = state.health
        self._batches = state.counters.batches
        self._report = report
        self._due_in = due_in
        self.unsettled: Settlements = []
        self._under_way: list[Call] = []
        self.blocked = Blocked(state, self._settle_blocked, LAST_SETTLE_PATIENCE_S + self._grace)

    @property
    def unfinished(self) -> bool:
        return bool(self.unsettled or self.blocked or self._under_way or self._outage.seconds)

    def add(self, run: Run, outcome: Outcome) -> None:
        """Decides what becomes of the task; that goes out with the next call."""
        self.unsettled.append((run, self.decide(run, outcome)))

    def decide(self, run: Run, outcome: Outcome) -> Transition:
        """Returns what the state machine makes of the outcome of an attempt."""
        task = run.task
        policy = run.handler.policy if run.handler is not None else Policy(backoff=self._backoff)
        if type(outcome) is Completed:
            done = complete(task.id, task.token, outcome.result, policy, self._worker_id, run.ms, task.feature)
            if task.join is not None:
                done.join = task.join
            return done
        bounds = [one for one in (self._tries, policy.tries) if one is not None]
        allowed = min(task.max_attempts, *bounds) if bounds else task.max_attempts
        lease = Lease(task.id, task.token, task.attempt, allowed, self._worker_id, run.ms, task.feature, task.join)
        decided: Transition | None
        try:
            decided = settle(lease, outcome, policy, random.random())  # noqa: S311 (jitter)
        except RedriveError as error:  # a snooze whose state cannot be stored
            return settle(lease, Fail(error.code, error.message), policy, 0.0)
        except Exception as error:  # and one whose state cannot even be read
            return settle(lease, failed_unexpectedly(run, error), policy, 0.0)
        if decided is None:  # a Verdict that is none of ours
            return settle(lease, failed_unexpectedly(run, TypeError()), policy, 0.0)
        return decided

    def take(self) -> Settlements:
        settlements, self.unsettled = self.unsettled[:MOST_SETTLED_PER_CALL], self.unsettled[MOST_SETTLED_PER_CALL:]
        return self.blocked.divert(settlements)

    def send(self, settlements: Settlements, want: ClaimRequest | None) -> Call:
        """Begins one call of the store: settles these, claims what is wanted."""
        if settlements:
            self._batches.note(len(settlements))
        cycle = self._cycle(_commit(settlements), want, again=_again(settlements))
        call = Call(self._lifecycle.loop.create_task(cycle), settlements, want, time.monotonic())
        self._under_way.append(call)
        health = self._health
        health.unanswered_since = health.unanswered_since or time.time()
        return call

    async def answer(self, call: Call) -> Cycle:
        """Waits for the answer to a call. A cancellation of this coroutine does not cut the call off: ``hand_back``
        sees to it, as long as nobody has taken the answer."""
        try:
            cycle = await asyncio.shield(call.task)
        except Exception:
            self.take_answer(call)
            raise
        self._health.unanswered_since = 0.0
        return cycle

    def take_answer(self, call: Call) -> bool:
        """Notes that the answer to a call was taken in. False when somebody else has taken it."""
        if call not in self._under_way:
            return False
        self._under_way.remove(call)
        return True

    def landed(
        self, settlements: Sequence[tuple[Run, Transition]], lost: Set[UUID], instead: Mapping[UUID, State]
    ) -> None:
        """Takes in what the store answered about these."""
        if self._drains and settlements:
            self._signal.look()
        for run, transition in settlements:
            self._runs.drop(run)
            if lost and run.task.id in lost:
                self._report.refused(run, transition)
                continue
            if instead and run.task.id in instead:
                self._report.landed(run, transition, instead[run.task.id])
                continue
            self._report.landed(run, transition)
            if transition.delay:
                self._due_in(transition.delay)

    def keep(self, settlements: Settlements) -> None:
        """Puts settlements without an answer back: they go out again, and what landed the first time is recognised."""
        for run, _ in settlements:
            run.again = True
        self.unsettled = settlements + self.unsettled

    def put_aside(self, settlements: Settlements) -> bool:
        """Goes on without those that an open transaction may hold up. False when none of them can be."""
        free = self.blocked.put_aside(settlements)
        if len(free) == len(settlements):
            return False
        self.keep(free)
        return True

    async def _settle_blocked(self, settlements: Settlements) -> bool:
        try:
            cycle = await self._cycle(_commit(settlements), None, again=True)
        except StoreBlocked:
            return False
        except RedriveError:
            self.keep(settlements)  # the hot loop meets the same, and knows what to do
        else:
            self.landed(settlements, cycle.lost, cycle.instead)
        return True

    async def wait_out_outage(self, error: RedriveError) -> bool:
        """Waits a little longer each time. False when the worker is to stop and the store does not come back."""
        delay = self._outage.begin(error)
        # From the stop on, however long the store was gone before it.
        waited = min(self._outage.seconds, time.monotonic() - self._lifecycle.stopped_at)
        if self._lifecycle.stopping and waited > LAST_SETTLE_PATIENCE_S + self._grace:
            self._outage.give_up(len(self.unsettled))
            return False
        if self._drains and not self._runs and not self.unsettled:
            raise error
        await self._outage.wait(delay)
        return True

    async def settle_one_by_one(self, settlements: Settlements, error: RedriveError) -> None:
        """Settles each by itself: the store refuses all for what is in one, and that one is failed with what it
        said."""
        if not settlements:
            await self._outage.wait(self._outage.begin(error))
            return
        left = settlements[::-1]
        while left:
            run, transition = left.pop()
            try:
                cycle = await self._cycle(Commit(transitions=[transition]), None, again=True)
            except asyncio.CancelledError:
                self.keep([(run, transition), *reversed(left)])
                raise
            except (StoreUnavailable, StoreUnusable) as outage:
                if isinstance(outage, StoreBlocked) and self.put_aside([(run, transition)]):
                    continue
                # The others have to wait with it.
                self.keep([(run, transition), *reversed(left)])
                await self.wait_out_outage(outage)
                return
            except RedriveError as refusal:
                verdict = Fail(ErrorCode.OUTCOME_REFUSED, f"the store refused the outcome: {refusal.message}"[:1000])
                if transition.failure is not None and transition.failure.code == verdict.code:
                    try:
                        landed = await self._fail_row(run, transition)
                    except asyncio.CancelledError:
                        self.keep([(run, transition), *reversed(left)])
                        raise
                    if not landed:
                        self.keep([(run, transition), *reversed(left)])
                        return
                    continue
                self.add(run, verdict)
            else:
                self.landed([(run, transition)], cycle.lost, cycle.instead)

    async def _fail_row(self, run: Run, transition: Transition) -> bool:
        """Fails a task by itself, whatever is in its row: not the outcome is refused, but the row. False when the store
        did not answer."""
        try:
            applied = await self._store.apply(Commit(transitions=[transition]))
        except (StoreUnavailable, StoreUnusable) as outage:
            await self.wait_out_outage(outage)
            return False
        if run.task.id in applied.refused:  # its feature does not let it end
            self._runs.drop(run)
            self._report.not_settled(run, transition, applied.refused[run.task.id])
        else:
            self.landed([(run, transition)], applied.lost, applied.instead)
        return True

    # -- the worker is being cancelled -----------------------------------------------------------------------------

    async def hand_back(self, give_back: Callable[[list[Claimed], float], None]) -> None:
        """Gives everything back after a stop, as far as the store answers. ``give_back`` gets what is claimed by a call
        that was under way, and when it was asked for."""
        # A claim that nobody heard the answer of: the store gives such tasks back when it is asked the next time, and
        # perhaps the time after that, because the server may still be at it.
        asks = 1 if self._outage.seconds else 0
        for call in tuple(self._under_way):
            if not await self._await_call(call, give_back):
                asks = 2
        ends = time.monotonic() + HAND_BACK_PATIENCE_S
        while self.unsettled or self.blocked or asks:
            self.blocked.go_on()
            if await self._offered(ends):
                asks = max(asks - 1, 0)
            if time.monotonic() >= ends:
                break
            if self.unsettled or self.blocked or asks:
                await asyncio.sleep(0.25 if self.unsettled or self.blocked else ASK_AGAIN_AFTER_S)
        await self.blocked.close()
        if left := len(self.unsettled) + len(self.blocked):
            self._outage.give_up(left)

    async def _offered(self, ends: float) -> bool:
        settlements, self.unsettled = self.unsettled, []
        try:
            async with asyncio.timeout(max(ends - time.monotonic(), 0.1)):
                cycle = await self._cycle(_commit(settlements), None, again=_again(settlements))
        except (StoreUnavailable, StoreUnusable, TimeoutError) as error:
            if not isinstance(error, StoreBlocked) or not self.put_aside(settlements):
                self.keep(settlements)
        except RedriveError as error:
            await self.settle_one_by_one(settlements, error)
        else:
            self.landed(settlements, cycle.lost, cycle.instead)
            return True
        return False

    async def _await_call(self, call: Call, give_back: Callable[[list[Claimed], float], None]) -> bool:
        """Waits for a call that was under way: it may have settled and claimed. False when a claim was left without an
        answer."""
        await asyncio.wait([call.task], timeout=HAND_BACK_PATIENCE_S)
        if not call.task.done():
            await end([call.task])
        if not self.take_answer(call):
            return True
        if call.task.cancelled() or call.task.exception() is not None:
            self.keep(call.settlements)
            return call.want is None
        cycle = call.task.result()
        self.landed(call.settlements, cycle.lost, cycle.instead)
        give_back(cycle.claimed, call.asked)
        return True


def _commit(settlements: Iterable[tuple[Run, Transition]]) -> Commit:
    return Commit(transitions=[transition for _, transition in settlements])


def _again(settlements: Iterable[tuple[Run, Transition]]) -> bool:
    """Returns whether some of these went out before, and the answer never came."""
    return any(run.again for run, _ in settlements)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks until they have ended: a library may swallow a cancellation that arrives at the wrong moment."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
