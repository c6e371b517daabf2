"""The running instance that a command tries out: over HTTP, by the command line in a process of its own, and whether it
is in production.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import typer

from redrive.errors import InvalidInput, RedriveError, StoreUnavailable
from redrive.settings import load_settings

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


COMMAND_TIMEOUT_S = 60.0


class CommandFailed(RedriveError):
    """Raised when such a command failed."""

    code = "COMMAND_FAILED"

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"redrive {command} ended with exit code {code}: {said}")
        self.ended_with = code


def run_command(*arguments: str, url: str | None = None, app: str | None = None) -> Any:
    """Returns what the command prints with ``--json``. Its URL goes by the environment: every user of the machine can
    read a command line, and the URL may have a password."""
    command = [sys.executable, "-m", "redrive.cli", *arguments, "--json", *(["--app", app] if app else [])]
    given = {**os.environ, **({"REDRIVE_URL": url} if url else {}), "REDRIVE_LOG": "off"}
    try:
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(arguments[0], -1, f"no answer within {COMMAND_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise CommandFailed(arguments[0], done.returncode, _message(done.stderr))
    return json.loads(done.stdout)


def _message(text: str) -> str:
    try:
        return str(json.loads(text.strip().splitlines()[-1])["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text.strip()[-300:] or "it said nothing"


PRODUCTION = "production"
InProduction = Annotated[
    bool, typer.Option("--in-production", help="Also where REDRIVE_ENV is production; it asks once more.")
]


def refuse_production(
    what: str, client: Client | None, told: bool, yes: bool, *, does: str = "makes tasks fail on purpose"
) -> None:
    """Refuses where this command, or the instance it is about to use, is in production: the first word is the option,
    the second the answer to a question, or ``--yes``."""
    if PRODUCTION not in (load_settings().env, None if client is None else _env_of(client)):
        return
    if not told:
        raise InvalidInput(
            f"this is production, and {what} {does}",
            hint="if that is meant: --in-production, and --yes where nobody can be asked",
        )
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{what} in production: nobody is there to ask", hint="if that is meant, say --yes as well")
    typer.confirm(f"{what} {does}, in production. Go on?", abort=True, err=True)


def _env_of(client: Client) -> str | None:
    """Returns where an instance says that it is; None where it says nothing."""
    try:
        found = client.get("/healthz").get("env")
    except (RedriveError, AttributeError):
        return None
    return found if isinstance(found, str) else None
