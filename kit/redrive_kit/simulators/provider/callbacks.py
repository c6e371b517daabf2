"""Calls back when a job has ended, if its start named an address for that."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable

from redrive_kit.simulators.provider.jobs import Job

TRIES = 3
TIMEOUT_SECONDS = 5.0


class Caller:
    """Calls the addresses of jobs when they are due to end, also of those that were cancelled before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.answers: Counter[str] = Counter()
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, job: Job) -> None:
        """Will call the address that a job's start has named, if it has."""
        if job.callback_url is not None and job.callback_url.startswith(("http://", "https://")):
            task = asyncio.ensure_future(self._call(job, job.callback_url))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, job: Job, url: str) -> None:
        await asyncio.sleep(max(job.ends_at - self._clock(), 0.0))
        for nth in range(TRIES):
            answer = await asyncio.to_thread(_post, url, job.document(self._clock()))
            self.answers[answer] += 1
            if answer.startswith("2"):
                return
            await asyncio.sleep(0.5 * 2**nth)


def _post(url: str, document: object) -> str:
    """Returns the status of the answer, or what went wrong. The address begins with http: that was looked at."""
    request = urllib.request.Request(  # noqa: S310
        url, json.dumps(document).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            return str(response.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (OSError, ValueError) as error:
        return type(error).__name__
