"""The HTTP server of a simulated provider."""

from __future__ import annotations

import asyncio
import hmac
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from redrive.errors import InvalidInput
from redrive_kit.simulators.faults import Trouble, json_of
from redrive_kit.simulators.provider.behaviour import Behaviour
from redrive_kit.simulators.provider.jobs import Job, Jobs, KeptJobs

TRIES = 3
TIMEOUT_SECONDS = 5.0


class Simulator:
    """A provider that is told how to behave, at ``/_control``, and says what was asked of it, at ``/_seen``."""

    def __init__(
        self, behaviour: Behaviour, *, token: str | None = None, seed: int = 0, keep: Path | None = None
    ) -> None:
        """``keep``: the file that its jobs are in after a restart."""
        self.trouble = Trouble(behaviour, seed)
        self.change = self.trouble.change
        self._keep = keep
        self.jobs = self._known(seed)
        self.caller = Caller(self.trouble.clock)
        self._token = token
        self._seed = seed

    def _known(self, seed: int) -> Jobs:
        return Jobs(seed) if self._keep is None else KeptJobs(self._keep, seed, now=self.trouble.clock())

    def app(self) -> ASGIApp:
        """Returns what a server serves."""
        routes = [
            self._route("/jobs", self.start, "POST"),
            self._route("/jobs", self.poll, "GET"),
            self._route("/jobs/search", self.search, "POST"),
            self._route("/jobs/{id}", self.show, "GET"),
            self._route("/jobs/{id}/cancel", self.cancel, "POST"),
            Route("/_seen", self.seen, methods=["GET", "DELETE"]),
            Route("/_control", self.trouble.control, methods=["GET", "POST"]),
        ]
        return self.trouble.around(Starlette(routes=routes, exception_handlers={InvalidInput: _refused}))

    def _route(self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> Route:
        """Returns a route that refuses who has not the token, where there is one."""

        async def endpoint(request: Request) -> Response:
            said = request.headers.get("Authorization", "")
            if self._token is None or hmac.compare_digest(said.encode(), f"Bearer {self._token}".encode()):
                return await answer(request)
            return JSONResponse({"error": {"message": "the token is missing or wrong"}}, 401)

        return Route(path, endpoint, methods=[method])

    async def start(self, request: Request) -> Response:
        """Starts a job; the same Idempotency-Key returns the one that it has started."""
        payload, callback = _parts(await json_of(request))
        key, now = request.headers.get("Idempotency-Key"), self.trouble.clock()
        job, new = self.jobs.start(key, payload, self.trouble.behaviour, now, callback)
        if new:
            self.caller.watch(job)
        return JSONResponse(job.document(now), 201 if new else 200)

    async def show(self, request: Request) -> Response:
        """Returns one job."""
        self.jobs.poll_requests += 1
        [*found] = self._documents([request.path_params["id"]])
        return JSONResponse(found[0]) if found else _unknown()

    async def poll(self, request: Request) -> Response:
        """Returns the jobs of ``?ids=a,b``, page by page, or the one that was started with ``?key=``."""
        if (key := request.query_params.get("key")) is not None:
            return self._page([one.id for one in self.jobs.by_id.values() if one.key == key], None)
        ids = [one for one in request.query_params.get("ids", "").split(",") if one]
        return self._page(ids, request.query_params.get("cursor"))

    async def search(self, request: Request) -> Response:
        """Returns the jobs of a body ``{"ids": […]}``, page by page."""
        body = await json_of(request)
        ids = body.get("ids") if isinstance(body, dict) else None
        if not isinstance(ids, list):
            raise InvalidInput("the body has to have ids, a list")
        return self._page([str(one) for one in ids], body.get("cursor"))

    async def cancel(self, request: Request) -> Response:
        """Cancels a job that has not ended."""
        job, now = self.jobs.by_id.get(request.path_params["id"]), self.trouble.clock()
        if job is None:
            return _unknown()
        self.jobs.cancel(job, now)
        return JSONResponse(job.document(now))

    async def seen(self, request: Request) -> Response:
        """Returns how often each key was started, and what else was asked; DELETE begins anew."""
        told = {**self.jobs.seen(), "refused": self.trouble.refused, "callbacks": dict(self.caller.answers)}
        if request.method == "DELETE":
            if self._keep is not None:
                self._keep.unlink(missing_ok=True)
            self.jobs, self.trouble.refused = self._known(self._seed), 0
        return JSONResponse(told)

    def _page(self, ids: list[str], cursor: object) -> Response:
        """Returns a page of jobs; those that are not known are left out."""
        behaviour, at = self.trouble.behaviour, int(str(cursor)) if str(cursor).isdecimal() else 0
        if len(ids) > behaviour.max_ids:
            raise InvalidInput(f"no more than {behaviour.max_ids} jobs can be asked for at once, not {len(ids)}")
        self.jobs.poll_requests += 1
        end = at + behaviour.page_size
        return JSONResponse({"jobs": self._documents(ids[at:end]), "next": str(end) if end < len(ids) else None})

    def _documents(self, ids: list[str]) -> list[dict[str, Any]]:
        now = self.trouble.clock()
        known = [one for one in ids if one in self.jobs.by_id]
        self.jobs.polls.update(known)
        return [self.jobs.by_id[one].document(now) for one in known]


def _parts(body: Any) -> tuple[Any, str | None]:
    """Returns the payload of a start, which may also be the whole body, and where to call."""
    if not isinstance(body, dict):
        return body, None
    callback = body.get("callback_url")
    return body.get("payload", body), callback if isinstance(callback, str) else None


async def _refused(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": {"message": str(error), "code": "INVALID"}}, 400)


def _unknown() -> Response:
    return JSONResponse({"error": {"message": "there is no such job"}}, 404)


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
