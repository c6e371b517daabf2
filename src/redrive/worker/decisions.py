"""Turns outcomes into transitions, by the state machine."""

from __future__ import annotations

import random

from redrive.errors import RedriveError
from redrive.kernel.machine import Lease, Policy, Transition, complete, settle
from redrive.kernel.outcome import Completed, Fail, Outcome
from redrive.worker.config import WorkerConfig
from redrive.worker.run import Run, failed_unexpectedly


class Decisions:
    """Turns the outcome of an attempt into the transition of its task, under the terms of one worker."""

    def __init__(self, config: WorkerConfig) -> None:
        self._worker_id = config.id
        self._backoff = config.settings.backoff
        self._tries = config.options.tries

    def decide(self, run: Run, outcome: Outcome) -> Transition:
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
