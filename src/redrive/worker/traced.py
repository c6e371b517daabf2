"""Runs attempts with a span each, where ``REDRIVE_TRACING`` is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.kernel.outcome import Outcome
from redrive.worker.run import Run, Runner, stopped

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from redrive.observe.tracing import Tracing


class TracedRunner(Runner):
    """A Runner whose handlers see the span of their attempt as the active one."""

    def __init__(self, tracing: Tracing, *args: Any) -> None:
        super().__init__(*args)
        self._tracing = tracing
        self._spans: dict[Run, Span] = {}  # of handlers that have not ended

    async def run(self, run: Run) -> Outcome:
        self._spans[run] = self._tracing.begin(run.task, self._worker_id)
        outcomes: list[Outcome] = []
        try:
            outcomes = [await super().run(run)]
            return outcomes[0]
        finally:
            self._end([run], outcomes)

    async def run_bulk(self, runs: list[Run]) -> list[Outcome]:
        span = self._tracing.begin_bulk([run.task for run in runs], self._worker_id)
        self._spans.update(dict.fromkeys(runs, span))
        outcomes: list[Outcome] = []
        try:
            outcomes = await super().run_bulk(runs)
            return outcomes
        finally:
            self._end(runs, outcomes)

    def abandoned(self, run: Run) -> None:
        """Ends the span of a handler that does not stop: it may never end."""
        self._end(run.mates or [run], [stopped(run)])

    def context(self) -> str | None:
        return self._tracing.active()

    def _end(self, runs: Sequence[Run], outcomes: Sequence[Outcome]) -> None:
        spans = {id(span): span for run in runs if (span := self._spans.pop(run, None)) is not None}
        for span in spans.values():
            self._tracing.end(span, outcomes)
