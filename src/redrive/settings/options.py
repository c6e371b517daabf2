"""What a worker is told on its command line, in code, or by its group in ``redrive.toml``."""

from __future__ import annotations

from typing import Any

from redrive.kernel.task import MAX_ATTEMPTS, MAX_TIMEOUT_SECONDS
from redrive.settings.declare import Values, option


class Options(Values):
    """What one worker process was told on its command line; everything else comes from Settings. Raises Unfit.

    The options of ``redrive work`` and the command lines of its child processes are made from this."""

    queues: tuple[str, ...] = option(
        ("default",), "A,B", help="Queues, the first drained first; else all of the app's."
    )
    concurrency: int = option(1, "N", ge=1, le=10_000, help="Tasks at once (else TASK_WORKER_CONCURRENCY, else 1).")
    sleep: float = option(1.5, "SECONDS", gt=0, help="Look again after so long (else TASK_WORKER_INTERVAL_MS).")
    tries: int | None = option(
        None, "N", ge=1, le=MAX_ATTEMPTS, help="Fail tasks after so many attempts, if they allow more."
    )
    timeout: float | None = option(
        None, "SECONDS", ge=0, le=MAX_TIMEOUT_SECONDS, help="For kinds without a timeout of their own; 0 is none."
    )
    max_time: float | None = option(None, "SECONDS", gt=0, help="Stop after so long.")
    max_jobs: int | None = option(None, "N", ge=1, help="Stop after so many tasks.")
    max_memory: float | None = option(None, "MB", gt=0, help="Stop when it holds more memory than so many megabytes.")
    once: bool = option(False, help="Run at most one task.")
    stop_when_empty: bool = option(False, help="Stop when nothing can run now.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"the options of a worker stay as they are; {name} cannot be set")
