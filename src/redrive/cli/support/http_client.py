"""A small client of redrive's own HTTP API, for commands that look at a running instance from outside."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from redrive.errors import InvalidInput, RedriveError, StoreUnavailable

REQUEST_TIMEOUT_S = 10.0


class Refused(RedriveError):
    code = "REFUSED"

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("detail", f"HTTP {status}")), hint=body.get("hint"))
        self.status = status
        self.code = str(body.get("code", "REFUSED"))


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: one would take the token along to wherever it points."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


class Client:
    def __init__(self, base: str, token: str | None = None) -> None:
        if not base.startswith(("http://", "https://")):
            raise InvalidInput(f"{base!r} is no address of an instance", hint="for example http://127.0.0.1:8321")
        self.base = base.rstrip("/")
        self._token = token

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, body: Any = None) -> Any:
        return self._call("POST", path, {} if body is None else body)

    def wait(self, task_id: str, states: tuple[str, ...], seconds: float) -> dict[str, Any]:
        """Waits until the task is in one of these states; returns it as it is by then, also if it is not."""
        ends = time.monotonic() + seconds
        while True:
            found: dict[str, Any] = self.get(f"/api/tasks/{task_id}")
            if found["task"]["state"] in states or time.monotonic() > ends:
                return found
            time.sleep(0.1)

    def _call(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.base + path, data=data, headers=headers, method=method)  # noqa: S310 - checked above
        try:
            with _opener.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise Refused(error.code, _problem(error)) from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise StoreUnavailable(f"{self.base} does not answer: {reason}", hint="is it up? redrive up") from None


def _problem(error: HTTPError) -> dict[str, Any]:
    try:
        found = json.load(error)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
